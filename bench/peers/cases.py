"""The cases of `cases.json`: their arrays, and the bounds on deviations of results."""

# Bounds on deviations, relative to the greatest element of a result; for bf16 and mixed precision
# as a number of unit roundoffs.
BOUNDS = {"f32": 1e-5, "bf16": 16 * 2.0**-8, "mixed": 16 * 2.0**-8}

# Kinds of f32 cases in which all contenders have the same initial values.
BEGUN = ("training", "convolutional", "recurrent", "transformer", "inference")

# Number of parameters from which only the first loss is computed in f64. The other losses are
# compared between contenders.
LARGE = 1 << 20


def operands(case):
    """Names of a case's arrays, with their shapes and the bounds of their numbers. A lower bound of
    None means class numbers below the upper bound."""
    kind = case["kind"]
    name = kind["is"]
    if name == "empty":
        return {"x": ([1], (-2, 2)), "s": ([1], (1, 1))}
    if name == "chain":
        n = [kind["elements"]]
        reads = {
            "copy": "xs",
            "copy_plain": "x",
            "gelu": "xbr",
            "mul_add": "xwbr",
            "eight": "xwbr",
        }[kind["chain"]]
        return {a: ([1], (1, 1)) if a == "s" else (n, (-2, 2)) for a in reads}
    if name == "rows":
        rows, columns = kind["rows"], kind["columns"]
        arrays = {"x": ([rows, columns], (-2, 2))}
        if kind["kernel"].startswith("layer_norm"):
            arrays.update(gamma=([columns], (0.5, 1.5)), beta=([columns], (-0.5, 0.5)))
        if kind["kernel"] == "layer_norm_backward":
            arrays["dy"] = ([rows, columns], (-1, 1))
        if kind["kernel"] == "cross_entropy_backward":
            arrays["labels"] = ([rows], (None, columns))
        return arrays
    if name == "column_sum":
        return {"x": ([kind["rows"], kind["columns"]], (-1, 1))}
    if name == "sum":
        return {"x": ([kind["elements"]], (-1, 1))}
    n = kind.get("extent")
    if name == "transpose":
        return {"x": ([n, n], (-1, 1))}
    if name == "gemm":
        arrays = {"x": ([n, n], (-1, 1)), "w": ([n, n], (-1, 1))}
        if kind["epilogue"] == "residual":
            arrays["r"] = ([n, n], (-1, 1))
        elif kind["epilogue"] != "none":
            arrays["b"] = ([n], (-1, 1))
        return arrays
    if name == "product":
        product = kind["product"]
        of_w = [product["inner"], product["columns"]]
        of_w = of_w[::-1] if product["transposed"] else of_w
        return {"x": ([product["rows"], product["inner"]], (-1, 1)), "w": (of_w, (-1, 1))}
    if name == "window":
        window = kind["window"]
        columns = window["columns"]
        return {
            "cache": ([window["rows"], columns], (-1, 1)),
            "rows": ([window["written"], columns], (-1, 1)),
        }
    if name == "training":
        network = kind["network"]
        return {
            "x": ([network["batch"], network["widths"][0]], (0, 1)),
            "y": ([network["batch"]], (None, network["widths"][-1])),
        }
    raise ValueError(f"cases of kind `{name}` are not known here")


def bound_of_losses(case):
    """Greatest allowed deviation of a loss, relative to its value. In mixed precision each system
    rounds at other places."""
    return 3e-2 if case["dtype"] == "mixed" else 1e-4


def bound_of(case):
    """Greatest allowed deviation of a result, relative to its scale."""
    if case["kind"]["is"] in (*BEGUN, "decoding") and case["dtype"] == "f32":
        return 1e-4
    return BOUNDS[case["dtype"]]


def is_compared(case, device):
    """Whether other systems run a recurrent network: on CPUs, and in the form of a loop. They do
    not run unrolled networks."""
    return device == "cpu" and case["kind"]["network"]["form"] == "scan"


def scale_of(case, expected_greatest):
    """The scale of deviations: the greatest element, or half the number of terms for sums with
    random signs."""
    kind = case["kind"]
    terms = {"sum": kind.get("elements"), "column_sum": kind.get("rows")}.get(kind["is"])
    return terms / 2 if terms else max(expected_greatest, 1e-30)
