"""The models of the tests of `wengert::tune`: two classifiers of digits as ONNX files, and the
gradients that PyTorch computes of them.

    python generate.py

Needs torch, onnx and numpy. The models were trained on transposed images of digits, so there is
something left to learn on upright ones.
"""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
DATA = HERE / "../../../python-free-examples/data/digits.csv.gz"


class Convolutions(nn.Module):
    """Images [batch,1,8,8] to logits [batch,10]."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.hidden = nn.Linear(12 * 16, 24)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        x = self.norm(F.relu(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(F.relu(self.hidden(x.flatten(1))))


class Transformer(nn.Module):
    """Rows of an image as words: [batch,8,8] to probabilities [batch,10]."""

    def __init__(self, width=24, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(torch.randn(8, width) * 0.1)
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 10)

    def logits(self, x):
        x = self.embed(x) + self.position
        n = self.norm1(x)
        parts = [
            layer(n).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        q, k, v = parts
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x.mean(1))

    def forward(self, x):
        return self.logits(x).softmax(-1)


def digits():
    table = np.loadtxt(gzip.open(DATA, "rt"), delimiter=",", dtype=np.float32)
    return table[:, :64].reshape(-1, 8, 8) / 16, table[:, 64].astype(np.int64)


def main():
    images, labels = digits()
    images, labels = torch.from_numpy(images), torch.from_numpy(labels)
    for name, model, shape in [
        ("convolutions", Convolutions, (-1, 1, 8, 8)),
        ("transformer", Transformer, (-1, 8, 8)),
    ]:
        torch.manual_seed(1)
        model = model()
        logits = getattr(model, "logits", model)
        turned = images.transpose(1, 2).reshape(shape)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for epoch in range(15):
            order = torch.randperm(1437)
            for rows in order.split(32):
                optimizer.zero_grad()
                F.cross_entropy(logits(turned[rows]), labels[rows]).backward()
                optimizer.step()
        model.eval()
        x = images.reshape(shape)
        right = lambda x: (model(x[1437:]).argmax(1) == labels[1437:]).float().mean().item()
        print(name, "turned", right(turned), "upright", right(x))
        torch.onnx.export(
            model,
            (x[:2],),
            HERE / f"{name}.onnx",
            input_names=["image"],
            output_names=["class"],
            dynamic_axes={"image": {0: "batch"}, "class": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
        # The gradient of the loss by the variables, with running statistics.
        model.zero_grad()
        loss = F.cross_entropy(logits(x[:16]), labels[:16])
        loss.backward()
        arrays = {f"d.{path}": p.grad.numpy() for path, p in model.named_parameters()}
        arrays |= {"image": x[:16].numpy(), "labels": labels[:16].numpy().astype(np.int32)}
        arrays["loss"] = np.float32(loss.item())
        # The same with the statistics of the batch, and the running statistics after it.
        if name == "convolutions":
            model.train()
            model.zero_grad()
            F.cross_entropy(logits(x[:16]), labels[:16]).backward()
            arrays |= {f"t.{path}": p.grad.numpy() for path, p in model.named_parameters()}
            arrays |= {f"s.{path}": b.numpy() for path, b in model.named_buffers() if b.ndim}
        np.savez(HERE / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main()
