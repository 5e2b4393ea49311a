# Sourced by build_docs.sh and run_tests.sh. Creates .venv, and .venv-docs with the packages of docs/requirements.txt.
# Its Python also finds the packages of .venv and the checkout itself, so that notebooks run as in .venv.
source scripts/environment.sh

stamp=.venv-docs/installed.txt
if ! cmp --silent docs/requirements.txt "$stamp"; then
  echo "installing the packages of docs/requirements.txt into .venv-docs"
  .venv/bin/python -m venv --clear --without-pip .venv-docs # an old setuptools beside pip would hide that of .venv
  .venv/bin/python -m pip --python .venv-docs/bin/python install --quiet --disable-pip-version-check --no-deps --requirement docs/requirements.txt
  cp docs/requirements.txt "$stamp"
fi
site_packages='import sysconfig; print(sysconfig.get_path("purelib"))' # asked each time, because the checkout may have moved
{ pwd; .venv/bin/python -c "$site_packages"; } > "$(.venv-docs/bin/python -c "$site_packages")/project.pth"
