"use strict";
// Sortable tables and curves: kernels, budgets, training, precision.

const ROWS = 200;

// A table that is sorted by a click on a column's name. A column has a name, the value of a row
// (`of`), perhaps its text, its kind (`name`, `text`), what a click does (`go`), and whether it is
// the first order (`first`).
function sortable(id, columns, rows) {
  let by = Math.max(0, columns.findIndex((column) => column.first));
  let falling = columns.some((column) => column.first);
  let most = ROWS;
  const body = element("tbody");
  const more = element("button", { type: "button", onclick: () => { most = Infinity; fill(); } });
  const heads = columns.map((column, n) => element("th",
    { class: column.kind === undefined ? "" : "text", scope: "col" },
    element("button", { type: "button", onclick: () => {
      falling = by === n ? !falling : column.kind === undefined;
      by = n;
      fill();
    } }, column.name)));
  const compare = (a, b) => {
    const [x, y] = [columns[by].of(a), columns[by].of(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return falling ? -order : order;
  };
  function cell(column, row) {
    const text = column.text ? column.text(row) : column.of(row);
    const shown = text === null || text === undefined ? "" : String(text);
    const content = column.go
      ? element("button", { type: "button", onclick: () => column.go(row) }, shown) : shown;
    return element("td", { class: column.kind || null }, content);
  }
  function fill() {
    heads.forEach((head, n) => {
      head.setAttribute("aria-sort", n !== by ? "none" : falling ? "descending" : "ascending");
    });
    const sorted = [...rows].sort(compare).slice(0, most);
    body.replaceChildren(...sorted.map((row) => element("tr", {},
      columns.map((column) => cell(column, row)))));
    more.hidden = rows.length <= most;
    more.textContent = `Show all ${rows.length} rows`;
  }
  fill();
  return element("div", { class: "scroll" }, element("table", { id },
    element("thead", {}, element("tr", {}, heads)), body), more);
}

// A chart that fits its box and follows the theme. `make` gives uPlot's options and data.
const CHARTS = new Map();
function chart(id, box, make) {
  const old = CHARTS.get(id);
  if (old) old.plot.destroy();
  const { options, data } = make();
  const width = Math.max(280, Math.min(1000, box.clientWidth));
  const height = width < 500 ? 240 : 340;
  const axis = (label) => ({
    label, stroke: Theme.get("text"), grid: { stroke: Theme.get("line"), width: 1 },
    ticks: { stroke: Theme.get("line"), width: 1 }, size: label === options.x ? 40 : 62,
  });
  const plot = new uPlot({
    width, height, scales: { x: { time: false } }, series: options.series,
    axes: [axis(options.x), axis(options.y)], legend: { live: data[0].length > 0 },
  }, data, box);
  CHARTS.set(id, { plot, box, make });
}

function redrawCharts() {
  for (const [id, { box, make }] of [...CHARTS]) {
    if (box.isConnected && box.offsetParent !== null) chart(id, box, make);
  }
}

const HUES = [
  "#3b82c4", "#d9772b", "#4f9d55", "#b0579e", "#b59a1f", "#6b70c9", "#c9535f", "#2f9a9a",
];

const Kernels = {
  made: false,
  start() {
    if (this.made) return;
    this.made = true;
    const all = KERNELS.map((kernel, number) => ({ kernel, number }))
      .filter(({ kernel }) => kernel.kind !== "loop" && kernel.kind !== "branch");
    const total = sum(all, ({ kernel }) => kernelSeconds(kernel)) || 1;
    const roof = (k) => k.predicted * k.times;
    const measured = ANATOMY.runs > 0;
    const columns = [
      { name: "Step", of: (r) => r.number },
      { name: "Kernel", of: (r) => r.kernel.name, kind: "name", go: (r) => showKernel(r.number) },
      { name: "Kind", of: (r) => r.kernel.kind, kind: "text" },
      { name: "Runs", of: (r) => r.kernel.times, text: (r) => countText(r.kernel.times) },
      { name: "Operations", of: (r) => r.kernel.operations,
        text: (r) => countText(r.kernel.operations) },
      { name: "Bytes", of: (r) => r.kernel.read + r.kernel.written,
        text: (r) => bytesText(r.kernel.read + r.kernel.written) },
      { name: "Roofline", of: (r) => roof(r.kernel), text: (r) => timeText(roof(r.kernel)),
        first: !measured },
      ...(measured ? [
        { name: "Measured", of: (r) => r.kernel.seconds, text: (r) => timeText(r.kernel.seconds),
          first: true },
        { name: "× roofline", of: (r) => (r.kernel.seconds === null ? null
          : r.kernel.seconds / roof(r.kernel)),
          text: (r) => (r.kernel.seconds === null ? (r.kernel.follows === null ? "" : "in product")
            : (r.kernel.seconds / roof(r.kernel)).toPrecision(3)) },
      ] : []),
      { name: "Share", of: (r) => kernelSeconds(r.kernel),
        text: (r) => percentText(kernelSeconds(r.kernel) / total) },
      { name: "Equations", of: (r) => r.kernel.equations.length },
    ];
    const { bytes, calls, nests } = ANATOMY.roofline;
    const times = measured
      ? `Times are means of ${ANATOMY.runs} run${ANATOMY.runs === 1 ? "" : "s"}. A nest that ` +
        "several steps run is measured as one and divided among them."
      : "Times are predicted; `graphrun report --profile RUNS` measures them.";
    document.getElementById("kernels").replaceChildren(
      element("h2", {}, `${all.length} kernels, ${timeText(total)} ` +
        `${measured ? "measured" : "predicted"}`),
      element("p", {}, `${times} The roofline is that of a machine with ${countText(bytes)}B/s, ` +
        `${countText(calls)}operations/s in products and other calls, and ` +
        `${countText(nests)}operations/s in nests.`),
      sortable("kernel-table", columns, all),
    );
  },
};

const Budgets = {
  made: false,
  start() {
    if (this.made) return redrawCharts();
    this.made = true;
    const points = DATA.budgets;
    const last = points[points.length - 1];
    const box = element("div", { class: "chart" });
    const more = (p) => p.predicted_seconds / last.predicted_seconds - 1;
    document.getElementById("budgets").replaceChildren(
      element("h2", {}, "Memory and time"),
      element("p", {}, points.length === 1
        ? "There is one plan: computing kernels again saves no memory."
        : "Each plan computes some kernels again so that their results need not stay in memory. " +
          "`--memory-budget` chooses the fastest that fits. Times are predicted."),
      box,
      sortable("budget-table", [
        { name: "In all", of: (p) => p.bytes, text: (p) => bytesText(p.bytes) },
        { name: "Arena", of: (p) => p.arena, text: (p) => bytesText(p.arena) },
        { name: "Of the largest", of: (p) => p.arena,
          text: (p) => percentText(p.arena / Math.max(1, last.arena)) },
        { name: "Kernels again", of: (p) => p.kernels_again },
        { name: "Operations", of: (p) => p.operations, text: (p) => countText(p.operations) },
        { name: "Time", of: (p) => p.predicted_seconds,
          text: (p) => timeText(p.predicted_seconds) },
        { name: "More time", of: (p) => p.predicted_seconds, text: (p) => percentText(more(p)) },
      ], points),
    );
    if (points.length > 1) {
      const unit = last.bytes >= 2 ** 30 ? ["GiB", 2 ** 30] : last.bytes >= 2 ** 20
        ? ["MiB", 2 ** 20] : ["KiB", 1024];
      const time = points[0].predicted_seconds >= 1 ? ["s", 1] : ["ms", 1e-3];
      return chart("budgets", box, () => ({
        options: {
          x: `memory in all, ${unit[0]}`, y: `predicted, ${time[0]}`, series: [
            { label: unit[0], value: (_, n) => (n === null ? "" : n.toPrecision(4)) },
            { label: time[0], stroke: HUES[0], width: 2, points: { show: true, size: 7 },
              value: (_, n) => (n === null ? "" : n.toPrecision(4)) },
          ],
        },
        data: [points.map((p) => p.bytes / unit[1]),
          points.map((p) => p.predicted_seconds / time[1])],
      }));
    }
    return null;
  },
};

const Training = {
  made: false,
  start() {
    if (this.made) return redrawCharts();
    this.made = true;
    const section = document.getElementById("training");
    const { runs } = DATA;
    if (runs.length === 0) {
      section.replaceChildren(element("h2", {}, "Training"), element("p", {},
        "No run was given. `graphrun report --run FOLDER` shows the curves of a run; several " +
        "folders lie over each other."));
      return null;
    }
    const known = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
    const names = [...known.filter((n) => n === "loss"), ...known.filter((n) => n !== "loss")];
    section.replaceChildren(element("h2", {}, `Training: ${runs.length} ` +
      `run${runs.length === 1 ? "" : "s"}`));
    for (const name of names) {
      const box = element("div", { class: "chart", "data-curve": name });
      section.append(element("h3", {}, name), box);
      const those = runs.map((run, n) => ({ run, n })).filter(({ run }) => run.curves[name]);
      chart(`curve ${name}`, box, () => ({
        options: {
          x: "step", y: name, series: [{ label: "step" }, ...those.map(({ run, n }) => ({
            label: run.folder, stroke: HUES[n % HUES.length], width: 1.5, spanGaps: false,
            points: { show: run.curves[name].steps.length < 60, size: 5 },
            value: (_, v) => (v === null || v === undefined ? "" : v.toPrecision(5)),
          }))],
        },
        // Steps of other runs are no gaps in a curve.
        data: uPlot.join(those.map(({ run }) => [run.curves[name].steps, run.curves[name].values]),
          those.map(() => [0, 2])),
      }));
    }
    return null;
  },
};

const Precision = {
  made: false,
  start() {
    if (this.made) return;
    this.made = true;
    const found = DATA.certificate;
    const section = document.getElementById("precision");
    const heading = element("h2", {}, "Certificate of precision");
    if (found.none !== undefined) {
      section.replaceChildren(heading, element("p", {}, found.none));
      return;
    }
    const short = (n) => (typeof n === "number" ? n.toExponential(1) : n);
    const first = (o) => (o.first_order === null ? null : o.first_order.error.relative);
    const relative = (figure) => (figure === null ? null : figure.relative);
    const outputs = sortable("outputs", [
      { name: "Output", of: (o) => o.name, kind: "name" },
      { name: "Type", of: (o) => o.type, kind: "text" },
      { name: "Magnitude", of: (o) => o.magnitude, text: (o) => short(o.magnitude) },
      { name: "Worst case", of: (o) => relative(o.worst_case),
        text: (o) => (o.lost === null ? short(relative(o.worst_case))
          : `none: lost in ${o.lost.op} at ${o.lost.source}`) },
      { name: "First order", of: first, text: (o) => short(first(o)) },
      { name: "Observed", of: (o) => o.observed.greatest.relative,
        text: (o) => short(o.observed.greatest.relative) },
    ], found.outputs);
    const rest = found.contributions.length === 0 ? [] : [
      element("h2", {}, "Equations that contribute most"),
      sortable("contributions", [
        { name: "Op", of: (c) => c.op, kind: "text" },
        { name: "Source", of: (c) => c.source, kind: "name" },
        { name: "Output", of: (c) => c.output, kind: "text" },
        { name: "Relative", of: (c) => c.part.relative, text: (c) => short(c.part.relative) },
        { name: "Share", of: (c) => c.share, text: (c) => percentText(c.share), first: true },
      ], found.contributions)];
    section.replaceChildren(heading,
      element("p", {}, "Errors are relative to the greatest magnitude of each output: a bound, " +
        "an estimate from derivatives, and the error of a run against an exact one."),
      found.no_estimate === null ? "" : element("p", {}, `No estimate: ${found.no_estimate}`),
      outputs, ...rest);
  },
};
