"""No request that schemathesis makes from the OpenAPI schema is answered with a 5xx."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from multitask.service.app import create_app
from multitask.service.limits import Limits
from tests.multitask.service.conftest import served

pytest.importorskip("schemathesis", reason="needs: pip install schemathesis")

# Which tasks a model has and how many texts a request may have is not in the schema, so valid data may be refused.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
CASES = 5000


@pytest.mark.slow
def test_no_request_is_a_failure_of_the_service(model, tmp_path: Path):
    tool = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color"]
    options = ["--checks", CHECKS, "--max-examples", "1500"]
    with served(create_app({"tiny": model}, Limits())) as url:
        done = subprocess.run([*tool, *options, f"{url}/openapi.json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    (cases,) = re.findall(r"([\d,]+) generated", done.stdout)
    print(cases, "cases")
    assert int(cases.replace(",", "")) >= CASES
