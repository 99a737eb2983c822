"""Writes losses.npz: losses with their derivatives (see `cases.py`).

Run it as `python3 losses.py`; it needs torch and numpy.
"""

import torch
import torch.nn.functional as F
from cases import Cases, draw

REDUCTIONS = ("mean", "sum", "none")


def of_numbers(cases):
    x, t = draw(5, 7), draw(5, 7)
    t[0, :3] = x[0, :3]
    for reduction in REDUCTIONS:
        cases.add(f"mse_{reduction}", lambda x, t: F.mse_loss(x, t, reduction=reduction), x=x, t=t)
    each = dict(reduction="none")
    cases.add("mae", lambda x, t: F.l1_loss(x, t, **each), x=x, t=t)
    cases.add("huber", lambda x, t: F.huber_loss(x, t, delta=0.75, **each), x=x, t=t)
    cases.add("smooth_l1", lambda x, t: F.smooth_l1_loss(x, t, beta=0.5), x=x, t=t)


def focal(x, t, gamma, alpha):
    p = torch.sigmoid(x)
    missed = 1 - (p * t + (1 - p) * (1 - t))
    losses = F.binary_cross_entropy_with_logits(x, t, reduction="none") * missed**gamma
    return losses if alpha is None else losses * (alpha * t + (1 - alpha) * (1 - t))


def of_independent_classes(cases):
    x, t = draw(4, 6, scale=4.0), torch.rand(4, 6)
    t = torch.round(t * 64) / 64
    x[0, 0], x[0, 1], x[0, 2] = 0.0, 60.0, -60.0
    t[1] = (t[1] > 0.5).double()
    positive, weight = torch.arange(1.0, 7.0), draw(4, 1).abs()
    binary = F.binary_cross_entropy_with_logits
    cases.add("bce", lambda x, t: binary(x, t, reduction="none"), x=x, t=t)
    cases.add(
        "bce_weighted",
        lambda x, t, p, w: binary(x, t, weight=w, pos_weight=p),
        constants=("p", "w"),
        x=x,
        t=t,
        p=positive,
        w=weight,
    )
    hard, near = (t > 0.5).double(), x.clamp(-12.0, 12.0)
    of_targets = dict(constants=("t",), x=near)
    cases.add("focal", lambda x, t: focal(x, t, 2.0, 0.25).mean(), t=hard, **of_targets)
    cases.add("focal_soft", lambda x, t: focal(x, t, 0.5, None), t=t, **of_targets)


def of_one_class(cases):
    x, labels = draw(2, 5, 7, scale=3.0), torch.randint(7, (2, 5))
    labels[0, 1], labels[1, 3] = -100, -100
    inside = labels.clone()
    inside[inside == -100] = 3
    weights = draw(7).abs() + 0.25

    def loss(x, labels, weights=None, **options):
        return F.cross_entropy(x.movedim(-1, 1), labels.long(), weight=weights, **options)

    for reduction in REDUCTIONS:
        kind = dict(reduction=reduction)
        cases.add(
            f"cross_entropy_{reduction}",
            lambda x, labels: loss(x, labels, **kind),
            x=x,
            labels=inside,
        )
        cases.add(
            f"cross_entropy_ignored_{reduction}",
            lambda x, labels: loss(x, labels, ignore_index=-100, **kind),
            x=x,
            labels=labels,
        )
        cases.add(
            f"cross_entropy_smooth_{reduction}",
            lambda x, labels: loss(x, labels, label_smoothing=0.15, ignore_index=3, **kind),
            x=x,
            labels=inside,
        )
        cases.add(
            f"cross_entropy_all_{reduction}",
            lambda x, labels, weights: loss(
                x, labels, weights, label_smoothing=0.3, ignore_index=-100, **kind
            ),
            constants=("weights",),
            x=x,
            labels=labels,
            weights=weights,
        )


def of_distributions(cases):
    x, t = draw(6, 5), torch.softmax(draw(6, 5, scale=2.0), 1)
    t[2] = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0])
    names = {"mean": "batchmean", "sum": "sum"}
    for reduction in REDUCTIONS:

        def loss(x, t, logs):
            log_p = F.log_softmax(x, 1)
            if reduction == "none":
                return F.kl_div(log_p, t, reduction="none", log_target=logs).sum(1)
            return F.kl_div(log_p, t, reduction=names[reduction], log_target=logs)

        cases.add(f"kl_{reduction}", lambda x, t: loss(x, t, False), constants=("t",), x=x, t=t)
        log_t = F.log_softmax(draw(6, 5), 1)
        cases.add(f"kl_logs_{reduction}", lambda x, t: loss(x, t, True), x=x, t=log_t)


def of_vectors(cases):
    a, b, n = draw(8, 5), draw(8, 5), draw(8, 5)
    b[0], n[1] = a[0] * 3, a[1]
    similar = torch.tensor([True, False, True, False, False, True, False, False])
    each = dict(reduction="none")

    def cosine(a, b, similar):
        return F.cosine_embedding_loss(a, b, similar.double() * 2 - 1, margin=0.125, **each)

    cases.add("cosine", cosine, a=a, b=b, similar=similar)
    for name, options in {
        "euclidean": dict(margin=1.5),
        "swapped": dict(margin=2.0, swap=True),
        "manhattan": dict(p=1.0),
        "cubic": dict(p=3.0),
    }.items():
        cases.add(
            f"triplet_{name}",
            lambda a, p, n: F.triplet_margin_loss(a, p, n, **each, **options),
            a=a,
            p=b,
            n=n,
        )


def of_sequences(cases):
    x = draw(9, 5, 4, scale=1.5)
    # Repeated labels, no labels, as many labels as steps, and more than there can be.
    labels = torch.tensor([[1, 1, 3, 2], [2, 3, 2, 3], [3, 1, 2, 0], [0, 0, 0, 0], [2, 2, 2, 2]])
    steps, counts = torch.tensor([9, 4, 7, 6, 5]), torch.tensor([4, 4, 3, 0, 4])

    def loss(x, labels, steps, counts, **options):
        return F.ctc_loss(F.log_softmax(x, 2), labels, steps, counts, zero_infinity=True, **options)

    for reduction in REDUCTIONS:
        cases.add(
            f"ctc_{reduction}",
            lambda **inputs: loss(reduction=reduction, **inputs),
            x=x,
            labels=labels,
            steps=steps,
            counts=counts,
        )
    # The last class as the blank.
    cases.add(
        "ctc_blank",
        lambda **inputs: loss(blank=3, reduction="none", **inputs),
        x=x,
        labels=torch.tensor([[1, 1, 0, 2], [2, 0, 2, 0], [0, 1, 2, 3], [3, 3, 3, 3], [2, 2, 2, 2]]),
        steps=steps,
        counts=counts,
    )


def main():
    torch.set_default_dtype(torch.float64)
    cases = Cases()
    groups = (of_numbers, of_independent_classes, of_one_class, of_distributions)
    groups += (of_vectors, of_sequences)
    for n, group in enumerate(groups):
        torch.manual_seed(n)
        group(cases)
    cases.write("losses.npz")


if __name__ == "__main__":
    main()
