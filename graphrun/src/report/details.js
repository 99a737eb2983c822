"use strict";
// The panel beside the graph: what is known about an equation, a group or a kernel.

const Details = {
  box: document.getElementById("details"),

  show(node) {
    if (node === null) this.start();
    else if (node.number === null) this.group(node);
    else this.equation(node.number);
    this.box.scrollTop = 0;
  },

  start() {
    this.box.replaceChildren(
      element("h2", {}, "Nothing is selected"),
      element("p", {}, "Click a box, or search with /. A group unfolds; an equation shows its " +
        "source line, its kernels and their cost. Drag to move, turn the wheel to zoom."),
    );
  },

  list(...pairs) {
    const shown = pairs.filter(([, value]) => value !== "" && value !== null);
    return element("dl", {}, shown.map(([name, value]) => [
      element("dt", {}, name), element("dd", {}, value),
    ]));
  },

  // Buttons that select equations.
  links(numbers) {
    const few = numbers.slice(0, 40);
    const buttons = few.map((number) => element("button", {
      type: "button", "data-equation": number, onclick: () => Graph.select(number),
    }, `${EQUATIONS[number].op} ${resultName(number)}`));
    const rest = numbers.length - few.length;
    return element("div", { class: "links" }, buttons, rest > 0 ? `and ${rest} more` : null);
  },

  section(title, numbers) {
    return numbers.length === 0 ? [] : [element("h3", {}, title), this.links(numbers)];
  },

  kernelLinks(numbers) {
    const few = numbers.slice(0, 30);
    const buttons = few.map((number) => element("button", {
      type: "button", "data-kernel": number, onclick: () => this.kernel(number),
    }, `${number}: ${KERNELS[number].name}`));
    const rest = numbers.length - few.length;
    return element("div", { class: "links" }, buttons, rest > 0 ? `and ${rest} more` : null);
  },

  equation(number) {
    const equation = EQUATIONS[number];
    const operands = [...new Set(equation.operands)];
    const inputs = operands.filter((n) => n < 0).map((n) => ANATOMY.inputs[-1 - n]);
    const outputs = ANATOMY.outputs.filter((output) => output.equation === number);
    const names = (ports) => ports.map((p) => `${p.name}: ${p.ty}`).join(", ");
    const back = equation.link === null ? "Equations of its derivative" : "Forward equation";
    this.box.replaceChildren(
      element("h2", {}, `${equation.op} ${resultName(number)}`),
      element("pre", { class: "wrap" }, equation.text),
      this.list(
        ["Source", element("span", { id: "source" }, sourceText(equation))],
        ["Derived by", equation.rule],
        ["Part", equation.part],
        ["Module", moduleText(equation)],
        ["In", this.around(equation)],
        ["Result", bytesText(equation.bytes)],
        ["Inputs", names(inputs)],
        ["Output", outputs.map((output) => output.name).join(", ")],
      ),
      ...(equation.kernels.length > 0
        ? [element("h3", {}, "Kernels"), this.kernelLinks(equation.kernels)]
        : [element("p", {}, equation.reason)]),
      ...(equation.kernels.length === 1 ? this.costs(KERNELS[equation.kernels[0]]) : []),
      ...this.section(back, equation.link === null ? DERIVED[number] : [equation.link]),
      ...this.section("Operands", operands.filter((n) => n >= 0)),
      ...this.section("Used by", USERS[number]),
    );
  },

  around(equation) {
    if (equation.callee !== null) return `callee @${equation.callee}`;
    if (equation.within === null) return "";
    const outer = equation.within;
    return element("span", {}, `region ${equation.region} of `, element("button", {
      type: "button", onclick: () => Graph.select(outer),
    }, `${EQUATIONS[outer].op} ${resultName(outer)}`));
  },

  group(node) {
    const byPart = (name) => percentText(node[name] / (Graph.tree.root[name] || 1));
    this.box.replaceChildren(
      element("h2", {}, node.label),
      this.list(
        ["Equations", String(node.count)],
        ["Time", `${timeText(node.seconds)}, ${byPart("seconds")}` +
          (ANATOMY.runs > 0 ? "" : " (predicted)")],
        ["Traffic", `${bytesText(node.traffic)}, ${byPart("traffic")}`],
      ),
      element("p", {}, "A kernel's cost is divided equally among its equations."),
      element("div", { class: "links" }, element("button", {
        type: "button", onclick: () => { Graph.toggle(node); this.show(node); },
      }, node.open ? "Fold" : "Unfold")),
    );
  },

  costs(kernel) {
    const measured = kernel.seconds;
    const roof = kernel.predicted * kernel.times;
    const moved = kernel.read + kernel.written;
    const share = kernel.shared > 1 ? `, its share of ${kernel.shared} steps of one nest` : "";
    return [this.list(
      ["Runs", kernel.times === 1 ? "" : `up to ${countText(kernel.times)} times`],
      ["Operations", countText(kernel.operations)],
      ["Bytes", `${bytesText(kernel.read)} read, ${bytesText(kernel.written)} written`],
      ["Intensity", `${(kernel.operations / Math.max(1, moved)).toPrecision(3)} operations/byte`],
      ["Roofline", timeText(roof)],
      ["Measured", measured === null ? (ANATOMY.runs > 0 && kernel.follows !== null
        ? "within the product before it" : "")
        : `${timeText(measured)}${share}: ${(measured / roof).toPrecision(3)} × the roofline`],
    )];
  },

  kernel(number) {
    const kernel = KERNELS[number];
    this.box.replaceChildren(
      element("h2", {}, `Kernel ${number}: ${kernel.name}`),
      element("pre", { class: "wrap" }, kernel.text),
      ...this.costs(kernel),
      ...(kernel.follows === null ? [] : [element("p", {}, "It may run on the tiles of the product "
        + "before it:"), this.kernelLinks([kernel.follows])]),
      ...(kernel.nest === null ? []
        : [element("h3", {}, "Nest"), element("pre", { id: "nest" }, ANATOMY.nests[kernel.nest])]),
      ...this.section("Equations", kernel.equations),
      ...(kernel.equations.length > 0 || kernel.kind !== "copy" ? []
        : [element("p", {}, "It copies a result to its place.")]),
    );
    this.box.scrollTop = 0;
  },
};
