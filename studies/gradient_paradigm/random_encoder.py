"""Write an encoder of one of transformers' architectures with random weights, for trainings to start from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from minbert.errors import InputError, install_with
from minbert.files import write_json
from multitask.base.runs import Weights, locate_model
from multitask.data.contamination import TrainedOn
from multitask.stages.run_stage import OpenRun
from studies.gradient_paradigm.stages import Architecture, RandomEncoderConfig

POSITIONS = 512
RANDOM_CHECKPOINT = "random"
OWN_SETTINGS: dict[Architecture, dict[str, Any]] = {  # in which published models differ from transformers' defaults
    "deberta-v2": {  # of DeBERTa-v3
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
    }
}


def compute(models: Sequence[Weights], _data: Path, config: RandomEncoderConfig, run: OpenRun) -> None:
    """Write the encoder into a run's folder. Raises InputError if transformers is missing."""
    try:
        import transformers
    except ImportError:
        raise InputError(f"random encoders need transformers; {install_with('sentence-transformers')}") from None
    auto: Any = transformers
    auto.utils.logging.disable_progress_bar()
    start = locate_model(models[0].name, models[0].revision)
    tokenizer = auto.AutoTokenizer.from_pretrained(start, trust_remote_code=False, local_files_only=True)
    own = dict(OWN_SETTINGS.get(config.architecture, {}))
    if config.architecture == "t5":
        own = {"d_ff": config.intermediate_size, "d_kv": config.hidden_size // config.num_attention_heads}
    shape = auto.AutoConfig.for_model(
        config.architecture,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        vocab_size=len(tokenizer),
        max_position_embeddings=POSITIONS + (tokenizer.pad_token_id + 1) * config.architecture.startswith("roberta"),
        **{f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep", "bos", "eos")},
        **own,
    )
    kind = auto.T5EncoderModel._from_config if config.architecture == "t5" else auto.AutoModel.from_config
    torch.manual_seed(config.seed)
    folder = run.folder / "checkpoints" / RANDOM_CHECKPOINT
    kind(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    TrainedOn().keep(run.folder)
    write_json(run.folder / "best.json", {"last": RANDOM_CHECKPOINT})
