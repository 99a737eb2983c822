"use strict";
// Tabs, search, theme, keys.

const TABS = [
  ["graph", "Graph", () => Graph.redraw()],
  ["memory", "Memory", () => Arena.start()],
  ["kernels", "Kernels", () => Kernels.start()],
  ["budgets", "Budgets", () => Budgets.start()],
  ["training", "Training", () => Training.start()],
  ["precision", "Precision", () => Precision.start()],
];

function openTab(name) {
  for (const [id, , start] of TABS) {
    const chosen = id === name;
    document.getElementById(id).hidden = !chosen;
    const button = document.getElementById(`tab-${id}`);
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    if (chosen) start();
  }
  tip("");
}

function makeTabs() {
  const bar = document.getElementById("tabs");
  bar.replaceChildren(...TABS.map(([id, label]) => element("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-controls": id, onclick: () => openTab(id),
  }, label)));
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([id]) => `tab-${id}` === document.activeElement.id);
    const next = TABS[(at + step + TABS.length) % TABS.length][0];
    openTab(next);
    document.getElementById(`tab-${next}`).focus();
  });
  for (const [id] of TABS) document.getElementById(id).setAttribute("aria-labelledby", `tab-${id}`);
}

// Shows a kernel beside the graph, with its first equation selected.
function showKernel(number) {
  openTab("graph");
  const [first] = KERNELS[number].equations;
  if (first !== undefined) Graph.select(first);
  Details.kernel(number);
}

const Search = {
  input: document.getElementById("search"),
  list: document.getElementById("found"),
  found: [],
  at: 0,

  start() {
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("focus", () => this.search());
    this.input.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("click", (event) => {
      if (!event.target.closest("header")) this.close();
    });
  },

  // The words of each equation, made at the first search.
  words() {
    this.texts ||= EQUATIONS.map((equation) => [
      equation.text, sourceText(equation), moduleText(equation), equation.part, equation.rule,
      ...equation.kernels.slice(0, 3).map((n) => KERNELS[n].name),
    ].join(" ").toLowerCase());
    return this.texts;
  },

  search() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    if (words.length === 0) return this.close();
    const texts = this.words();
    const fits = (text) => words.every((word) => text.includes(word));
    const groups = [];
    const visit = (node) => {
      if (node.number !== null) return;
      if (node.parent !== null && fits(path(node).toLowerCase())) groups.push(node);
      node.children.forEach(visit);
    };
    visit(Graph.tree.root);
    const equations = [];
    let count = 0;
    texts.forEach((text, number) => {
      if (!fits(text)) return;
      count += 1;
      if (equations.length < 40) equations.push(number);
    });
    this.found = [
      ...groups.slice(0, 8).map((node) => ({
        title: path(node), under: `${node.count} equations`, go: () => Graph.select(node),
      })),
      ...equations.map((number) => ({
        title: EQUATIONS[number].text.slice(0, 160),
        under: [sourceText(EQUATIONS[number]), moduleText(EQUATIONS[number])].join("   "),
        go: () => Graph.select(number),
      })),
    ];
    this.at = 0;
    const rest = count - equations.length;
    this.list.replaceChildren(
      ...this.found.map((entry, n) => element("li", {
        role: "option", id: `found-${n}`, "aria-selected": String(n === 0),
        onmousedown: (event) => { event.preventDefault(); this.go(n); },
      }, entry.title, element("small", {}, entry.under))),
      ...(rest > 0 ? [element("li", { role: "presentation" }, `and ${rest} more equations`)] : []),
      ...(this.found.length > 0 ? []
        : [element("li", { role: "presentation" }, "Nothing found")]),
    );
    this.list.hidden = false;
    return this.input.setAttribute("aria-expanded", "true");
  },

  go(n) {
    const entry = this.found[n];
    this.close();
    if (!entry) return;
    openTab("graph");
    entry.go();
    document.getElementById("canvas").focus();
  },

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  },

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") this.go(this.at);
    if (event.key === "Escape") {
      this.close();
      this.input.blur();
      event.stopPropagation();
    }
    if (!step || this.found.length === 0) return;
    event.preventDefault();
    this.at = (this.at + step + this.found.length) % this.found.length;
    [...this.list.children].forEach((entry, n) => {
      if (entry.id) entry.setAttribute("aria-selected", String(n === this.at));
    });
    this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
  },
};

// The labels of a group and of those around it.
function path(node) {
  const labels = [];
  for (let at = node; at.parent !== null; at = at.parent) labels.unshift(at.label);
  return labels.join(" › ");
}

const KEYS = [
  ["/", "search"], ["Esc", "close, or select nothing"], ["Tab", "next control; the graph is one"],
  ["← →", "box before or after"],
  ["↑ ↓", "first operand or first user; out of and into a group"],
  ["Enter", "fold or unfold a group"], ["l", "from forward to backward and back"],
  ["+ −", "zoom"], ["0", "show the whole graph"],
];

function keys() {
  const box = document.getElementById("keys");
  box.replaceChildren(element("h2", {}, "Keys"),
    element("dl", {}, KEYS.map(([key, does]) => [element("dt", {}, key), element("dd", {}, does)])),
    element("h2", {}, "Libraries"),
    element("pre", {}, document.getElementById("licences").textContent.trim()),
    element("button", { type: "button", onclick: () => box.close() }, "Close"));
  box.showModal();
}

function summary() {
  const bound = Object.entries(ANATOMY.binding).map(([name, n]) => `${name} = ${n}`).join(", ");
  const kernels = KERNELS.filter((kernel) => kernel.kind === "nest" || kernel.kind === "call");
  return [
    bound, `target ${ANATOMY.target}`, `${EQUATIONS.length} equations`,
    `${kernels.length} kernels`, `${bytesText(ANATOMY.memory.total)} of memory`,
  ].filter((text) => text !== "").join(" · ");
}

function main() {
  document.getElementById("title").textContent = document.title;
  document.getElementById("summary").textContent = summary();
  Theme.set(window.matchMedia("(prefers-color-scheme: dark)").matches);
  const themed = () => {
    Graph.redraw();
    if (Arena.made) Arena.redraw();
    redrawCharts();
  };
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    Theme.set(event.matches);
    themed();
  });
  document.getElementById("theme").addEventListener("click", () => {
    Theme.set(!Theme.isDark());
    themed();
  });
  document.getElementById("help").addEventListener("click", keys);
  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redrawCharts, 150);
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      Search.input.focus();
      Search.input.select();
    }
    if (event.key === "Escape" && !typing) {
      Graph.selected = null;
      Details.start();
      Graph.redraw();
    }
  });
  makeTabs();
  Search.start();
  Details.start();
  Graph.start();
  openTab("graph");
}

main();
