"use strict";
// Trees of groups over the equations: by module, by loop or branch, by source file.
//
// A node is a group with children or an equation. A group that has more children than MOST gets
// groups of consecutive children, so that no layout has more than MOST boxes.

const MOST = 60;
const Tree = {
  // Direction of the outermost layout: the parts lie side by side where there is room.
  direction: "LR",

  // The path of groups of an equation, outermost first.
  path(mode, number) {
    const equation = EQUATIONS[number];
    if (mode === "source") {
      if (equation.file === null) return ["unknown source"];
      return [ANATOMY.files[equation.file], `line ${equation.line}`];
    }
    const own = mode === "module" && equation.module !== null
      ? moduleText(equation).split(".") : [];
    if (equation.within === null) {
      const callee = mode === "region" && equation.callee !== null;
      return [callee ? `@${equation.callee}` : equation.part, ...own];
    }
    // Within a loop or branch, modules are those below the module of the loop.
    const around = EQUATIONS[equation.within];
    const region = `${around.op} ${resultName(equation.within)}, region ${equation.region}`;
    const outer = moduleText(around).split(".");
    const shared = (n) => own.slice(0, n + 1).join() === outer.slice(0, n + 1).join();
    const below = own.filter((_, n) => !shared(n));
    return [...this.path(mode, equation.within), region, ...below];
  },

  build(mode) {
    const root = group("", null);
    const leaves = EQUATIONS.map((_, number) => {
      let at = root;
      for (const name of this.path(mode, number)) {
        if (!at.named.has(name)) {
          at.named.set(name, group(name, at));
          at.children.push(at.named.get(name));
        }
        at = at.named.get(name);
      }
      const leaf = { label: `${EQUATIONS[number].op} ${resultName(number)}`, number, parent: at };
      at.children.push(leaf);
      return leaf;
    });
    settle(root, mode === "module" ? "." : " › ");
    root.open = true;
    join(leaves, root);
    return { mode, root, leaves };
  },
};

function group(label, parent) {
  return {
    label, parent, number: null, children: [], named: new Map(), open: false, edges: new Map(),
    laid: false,
  };
}

// Merges groups that have one child, which is a group; divides groups that have too many; counts.
function settle(node, joint) {
  if (node.number !== null) {
    node.count = 1;
    node.seconds = SECONDS[node.number];
    node.traffic = TRAFFIC[node.number];
    node.first = node.number;
    node.depth = node.parent.depth + 1;
    return;
  }
  node.depth = node.parent === null ? 0 : node.parent.depth + 1;
  while (node.parent !== null && node.children.length === 1 && node.children[0].number === null) {
    const only = node.children[0];
    const isPart = node.parent.parent === null && joint === ".";
    node.label = `${node.label}${isPart ? " " : joint}${only.label}`;
    node.children = only.children;
    node.children.forEach((child) => { child.parent = node; });
  }
  node.children.forEach((child) => settle(child, joint));
  if (node.children.length > MOST) divide(node);
  node.count = sum(node.children, (child) => child.count);
  node.seconds = sum(node.children, (child) => child.seconds);
  node.traffic = sum(node.children, (child) => child.traffic);
  node.first = Math.min(...node.children.map((child) => child.first));
}

function sum(list, of) {
  return list.reduce((total, item) => total + of(item), 0);
}

function divide(node) {
  const size = Math.max(20, Math.ceil(node.children.length / MOST));
  const all = node.children;
  node.children = [];
  for (let start = 0; start < all.length; start += size) {
    const part = group("", node);
    part.children = all.slice(start, start + size);
    part.children.forEach((child) => { child.parent = part; });
    part.depth = node.depth + 1;
    part.count = sum(part.children, (child) => child.count);
    part.seconds = sum(part.children, (child) => child.seconds);
    part.traffic = sum(part.children, (child) => child.traffic);
    part.first = part.children[0].first;
    const name = (child) => (child.number === null ? child.label : resultName(child.number));
    part.label = `${name(part.children[0])} … ${name(part.children[part.children.length - 1])}`;
    const deeper = (below) => {
      below.depth = below.parent.depth + 1;
      if (below.number === null) below.children.forEach(deeper);
    };
    part.children.forEach(deeper);
    node.children.push(part);
  }
}

// Gives each group the edges between its children: those between the equations in them.
function join(leaves) {
  EQUATIONS.forEach((equation, number) => {
    for (const operand of equation.operands) {
      if (operand < 0) continue;
      let [from, to] = [leaves[operand], leaves[number]];
      while (from.depth > to.depth) from = from.parent;
      while (to.depth > from.depth) to = to.parent;
      if (from === to) continue;
      while (from.parent !== to.parent) [from, to] = [from.parent, to.parent];
      const edges = from.parent.edges;
      if (!edges.has(from)) edges.set(from, new Map());
      edges.get(from).set(to, (edges.get(from).get(to) || 0) + 1);
    }
  });
}

// Opens groups from the outermost on, while at most `most` boxes are shown.
function openSome(root, most) {
  let shown = root.children.length;
  const waiting = [...root.children].filter((node) => node.number === null);
  while (waiting.length > 0) {
    const node = waiting.shift();
    if (shown + node.children.length > most) continue;
    node.open = true;
    shown += node.children.length;
    waiting.push(...node.children.filter((child) => child.number === null));
  }
}

// Gives the boxes in an open group their places, by dagre. Groups whose contents did not change
// keep their layout.
function lay(node) {
  if (node.laid) return;
  node.laid = true;
  if (node.number !== null || !node.open) {
    node.w = node.number !== null ? 16 + 7 * Math.min(44, node.label.length)
      : Math.max(140, 40 + 10.5 * Math.min(40, node.label.length));
    node.h = node.number !== null ? 26 : 44;
    return;
  }
  node.children.forEach(lay);
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({
    rankdir: node.parent === null ? Tree.direction : "TB",
    nodesep: 14, ranksep: 26, edgesep: 6, marginx: 12, marginy: 10,
    ranker: node.children.length > 40 ? "longest-path" : "network-simplex",
  });
  graph.setDefaultEdgeLabel(() => ({}));
  node.children.forEach((child, n) => graph.setNode(n, { width: child.w, height: child.h }));
  const numbers = new Map(node.children.map((child, n) => [child, n]));
  for (const [from, tos] of node.edges) {
    for (const [to, weight] of tos) {
      graph.setEdge(numbers.get(from), numbers.get(to), { weight: Math.min(weight, 8) });
    }
  }
  dagre.layout(graph);
  const header = node.parent === null ? 0 : 22;
  node.children.forEach((child, n) => {
    const at = graph.node(n);
    child.x = at.x - at.width / 2;
    child.y = at.y - at.height / 2 + header;
  });
  node.lines = graph.edges().map((edge) => {
    const points = graph.edge(edge).points.map((p) => [p.x, p.y + header]);
    return { from: node.children[edge.v], to: node.children[edge.w], points };
  });
  const { width, height } = graph.graph();
  node.w = Math.max(width, 40 + 10.5 * Math.min(40, node.label.length));
  node.h = height + header;
}

function isShown(node) {
  for (let at = node.parent; at !== null; at = at.parent) {
    if (!at.open) return false;
  }
  return true;
}

function changed(node) {
  for (let at = node; at !== null; at = at.parent) at.laid = false;
}

// The place of a shown box in the coordinates of the root.
function place(node) {
  let [x, y] = [0, 0];
  for (let at = node; at.parent !== null; at = at.parent) {
    x += at.x;
    y += at.y;
  }
  return { x, y, w: node.w, h: node.h };
}
