"""Writes metrics.npz: scores, labels, and the metrics that scikit-learn gives for them.

Run it as `python3 generate.py`; it needs numpy and scikit-learn. In the file:

    <case>.scores              scores [N, C] with ties, in double precision
    <case>.labels              labels [N], below C
    <case>.<metric>            a metric, a number or a matrix
    <case>.<metric>.<k>        the metric of class k, or the accuracy among the first k

The cases: `many` lacks classes among its labels and others among its predictions; `one` has a
single class among labels and predictions; `wrong` has no right prediction; `binary` has two
classes, whose scores are mostly tied.

Where scores are equal, the first class precedes, in numpy's argmax too. `top_k_accuracy_score`
takes the last one first, so it gets the classes in reverse order.
"""

import os

import numpy as np
from sklearn import metrics as m


def described(scores, labels):
    classes = scores.shape[1]
    every = list(range(classes))
    found = scores.argmax(1)
    values = {"scores": scores, "labels": labels.astype(np.int32)}
    values["accuracy"] = m.accuracy_score(labels, found)
    values["confusion"] = m.confusion_matrix(labels, found, labels=every).astype(np.uint64)
    for name, score in [
        ("precision", m.precision_score),
        ("recall", m.recall_score),
        ("f1", m.f1_score),
    ]:
        for average in ["macro", "micro"]:
            values[f"{name}.{average}"] = score(labels, found, average=average, zero_division=0)
        each = score(labels, found, labels=every, average=None, zero_division=0)
        for k in every:
            values[f"{name}.{k}"] = each[k]
    # Two classes have one column of scores in scikit-learn.
    for k in range(1, classes) if classes > 2 else []:
        reverse = (classes - 1 - labels, scores[:, ::-1])
        values[f"top.{k}"] = m.top_k_accuracy_score(*reverse, k=k, labels=every)
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    values["perplexity"] = np.exp(m.log_loss(labels, probabilities, labels=every))
    values["squared"] = m.mean_squared_error(labels, scores[:, 0])
    values["absolute"] = m.mean_absolute_error(labels, scores[:, 0])
    return values


def main():
    random = np.random.default_rng(0)
    quarters = lambda *shape: random.integers(-6, 7, shape) / 4
    cases = {}
    scores = quarters(97, 7)
    scores[:, 5] = -9
    labels = random.choice([0, 1, 3, 5], 97)
    cases["many"] = described(scores, labels)
    scores = quarters(9, 4)
    scores[:, 2] = 8
    cases["one"] = described(scores, np.full(9, 2))
    scores = quarters(8, 3)
    scores[:, 0] = 3
    cases["wrong"] = described(scores, random.choice([1, 2], 8))
    scores = quarters(211, 2)
    labels = (scores[:, 1] + random.normal(size=211) > 0).astype(int)
    cases["binary"] = described(scores, labels)
    cases["binary"]["auc"] = m.roc_auc_score(labels, scores[:, 1])
    values = {f"{case}.{k}": np.asarray(v) for case, all in cases.items() for k, v in all.items()}
    np.savez_compressed(os.path.join(os.path.dirname(__file__), "metrics.npz"), **values)


main()
