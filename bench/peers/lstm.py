"""Trains the network of the example `lstm` in PyTorch: the same model, batches, order, optimiser
and rate.

    python3 bench/peers/lstm.py [--steps 1000] [--threads 2] [--seconds 180]

Prints bits per character on the last tenth of the text, and the training time without evaluations.
It needs torch. Two things differ: the random numbers (initial weights, dropout), and clipping. The
example clips cotangents of the state within the recurrence, which PyTorch's layer does not allow.
Here the gradient's norm is clipped to 1 instead.
"""

import argparse
import gzip
import math
import os
import time

import torch

EMBEDDING, WIDTH, STREAMS, WINDOW, DROPOUT, RATE, WARM_UP = 64, 256, 32, 64, 0.3, 4e-3, 50


class Model(torch.nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, EMBEDDING)
        self.lstm = torch.nn.LSTM(EMBEDDING, WIDTH)
        self.out = torch.nn.Linear(WIDTH, characters)
        self.dropout = torch.nn.Dropout(DROPOUT)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        torch.nn.init.xavier_uniform_(self.out.weight)
        torch.nn.init.zeros_(self.out.bias)
        with torch.no_grad():
            self.lstm.bias_hh_l0.zero_()
            self.lstm.bias_ih_l0.zero_()
            self.lstm.bias_ih_l0[WIDTH : 2 * WIDTH] = 1
        self.lstm.bias_hh_l0.requires_grad_(False)

    def forward(self, x, state=None):
        hidden, state = self.lstm(self.dropout(self.embedding(x)), state)
        return self.out(self.dropout(hidden)), state


def rate(step, steps):
    """Linear warm-up, then half a cosine down; `step` counts from 1."""
    if step < WARM_UP:
        return RATE * step / WARM_UP
    return RATE * 0.5 * (1 + math.cos(math.pi * min((step - WARM_UP) / (steps - WARM_UP), 1)))


def bits(model, test):
    """Bits per character of the whole text as one stream. A call takes a thousand steps, because
    the layer keeps all of them."""
    model.eval()
    total, state = 0.0, None
    with torch.no_grad():
        for begin in range(0, len(test) - 1, 1000):
            part = test[begin : begin + 1001]
            logits, state = model(part[:-1, None], state)
            total += torch.nn.functional.cross_entropy(
                logits[:, 0], part[1:], reduction="sum"
            ).item()
    model.train()
    return total / (len(test) - 1) / math.log(2)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="limit on training time")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    data = os.path.join(
        os.path.dirname(os.path.abspath(__file__)),
        "../../python-free-examples/data/asyoulik.txt.gz",
    )
    text = gzip.open(data).read()
    alphabet = sorted(set(text))
    numbers = torch.tensor([alphabet.index(c) for c in text])
    train, test = numbers.split([len(numbers) // 10 * 9, len(numbers) - len(numbers) // 10 * 9])
    windows = (len(train) - 1) // STREAMS // WINDOW
    streams = [
        train[shift : shift + STREAMS * windows * WINDOW].view(STREAMS, -1) for shift in (0, 1)
    ]
    model = Model(len(alphabet))
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.dim() > 1]},
        {"params": [p for p in weights if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.01)
    state, trained = None, 0.0
    for step in range(1, arguments.steps + 1):
        begin = time.perf_counter()
        window = (step - 1) % windows * WINDOW
        x, y = (stream[:, window : window + WINDOW].t().contiguous() for stream in streams)
        for group in optimiser.param_groups:
            group["lr"] = rate(step, arguments.steps)
        logits, state = model(x, state)
        state = tuple(s.detach() for s in state)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        trained += time.perf_counter() - begin
        late = trained > arguments.seconds
        if step % 100 == 0 or step == arguments.steps or late:
            learnt = loss.item() / math.log(2)
            print(
                f"step {step:4}, {trained:3.0f} s: {learnt:.3f} bits in training, "
                f"{bits(model, test):.3f} on the last tenth",
                flush=True,
            )
        if late:
            break


if __name__ == "__main__":
    main()
