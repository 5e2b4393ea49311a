"""Three sentence tasks in one training loop, with nothing but minbert and torch: the course's starter code in one file.

One encoder, one head for each task, and in every step a batch of each task. `multitask finetune` does the same, with
packing, checkpoints and resuming. Run it from the checkout: python examples/course_training_loop.py
"""

import csv
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minbert import BertModel, load_tokenizer

TASKS = {  # file, columns of text, column of labels, loss
    "sentiment": ("ids-sst", ["sentence"], "sentiment", lambda x, y: F.cross_entropy(x, y.long())),
    "paraphrase": ("quora", ["sentence1", "sentence2"], "is_duplicate", F.binary_cross_entropy_with_logits),
    "similarity": ("sts", ["sentence1", "sentence2"], "similarity", F.mse_loss),
}


class MultitaskBert(nn.Module):
    """An encoder and the heads of the tasks; similarity is the cosine of two embeddings and has no head."""

    def __init__(self, start: str) -> None:
        super().__init__()
        self.tokenizer, self.encoder = load_tokenizer(start), BertModel.from_pretrained(start)
        hidden = self.encoder.config.hidden_size
        self.heads = nn.ModuleDict({"sentiment": nn.Linear(hidden, 5), "paraphrase": nn.Linear(3 * hidden, 1)})

    def embed(self, sentences: list[str]) -> Tensor:  # -> [sentences, hidden], means over tokens
        batch = self.tokenizer(sentences, max_length=64)
        hidden = self.encoder(batch.input_ids, batch.attention_mask).last_hidden_state  # [sentences, seq, hidden]
        mask = batch.attention_mask[:, :, None]
        return (hidden * mask).sum(1) / mask.sum(1)

    def forward(self, task: str, texts: list[list[str]]) -> Tensor:
        x, *y = map(self.embed, texts)
        if task == "sentiment":
            return self.heads[task](x)  # [batch, 5] logits
        if task == "paraphrase":
            return self.heads[task](torch.cat([(x - y[0]).abs(), x * y[0], x + y[0]], dim=1))[:, 0]  # [batch] logits
        return 5 * F.cosine_similarity(x, y[0]).clamp_min(0)  # [batch] from 0 to 5


def read(data: Path, task: str, split: str) -> tuple[list[list[str]], Tensor]:
    """The columns of text, and the labels [rows]."""
    name, columns, label, _ = TASKS[task]
    with (data / f"{name}-{split}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [[row[column] for row in rows] for column in columns], torch.tensor([float(row[label]) for row in rows])


@torch.no_grad()
def score(model: MultitaskBert, task: str, texts: list[list[str]], labels: Tensor) -> float:
    """Accuracy; for similarity, Pearson's correlation."""
    output = torch.cat([model(task, [t[i : i + 64] for t in texts]) for i in range(0, len(labels), 64)])
    if task == "similarity":
        return float(torch.corrcoef(torch.stack([output, labels]))[0, 1])
    return float(((output.argmax(1) if task == "sentiment" else output > 0) == labels).float().mean())


def main(data: Path = Path("data/sample"), start: str = "all-minilm-l6-v2", steps: int = 60, batch: int = 16) -> None:
    """Train, and print the scores on the dev sets."""
    torch.manual_seed(0)
    model, training = MultitaskBert(start), {task: read(data, task, "train") for task in TASKS}
    groups = [{"params": model.encoder.parameters(), "lr": 5e-5}, {"params": model.heads.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups)
    for step in range(1, steps + 1):
        losses = {}
        for task, (texts, labels) in training.items():
            rows = torch.randperm(len(labels))[:batch].tolist()
            losses[task] = TASKS[task][-1](model(task, [[column[i] for i in rows] for column in texts]), labels[rows])
        optimizer.zero_grad()
        torch.stack([*losses.values()]).mean().backward()
        optimizer.step()
        print(f"step {step}: " + ", ".join(f"{task} {loss.item():.3f}" for task, loss in losses.items()))
    print("dev: " + ", ".join(f"{task} {score(model, task, *read(data, task, 'dev')):.3f}" for task in TASKS))


if __name__ == "__main__":
    main()
