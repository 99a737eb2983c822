"use strict";
// The graph: drawing on a canvas, zoom, selection.

const Graph = {
  trees: new Map(), tree: null, selected: null, transform: d3.zoomIdentity, colour: "part",
  drawn: 0, waiting: false,

  start() {
    this.canvas = document.getElementById("canvas");
    this.zoom = d3.zoom().scaleExtent([0.004, 6]).clickDistance(5).on("zoom", (event) => {
      this.transform = event.transform;
      this.redraw();
    });
    // A click or a double click selects; it does not zoom.
    d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => tip(""));
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    document.getElementById("mode").addEventListener("change", (event) => {
      this.show(event.target.value);
    });
    document.getElementById("colour").addEventListener("change", (event) => {
      this.colour = event.target.value;
      this.legend();
      this.redraw();
    });
    document.getElementById("fit").addEventListener("click", () => this.fit());
    document.getElementById("fold").addEventListener("click", () => this.foldAll());
    document.getElementById("more").addEventListener("click", () => this.scale(1.6));
    document.getElementById("less").addEventListener("click", () => this.scale(1 / 1.6));
    this.legend();
    this.show("module");
  },

  show(mode) {
    if (!this.trees.has(mode)) {
      const tree = Tree.build(mode);
      openSome(tree.root, 36);
      this.trees.set(mode, tree);
    }
    this.tree = this.trees.get(mode);
    if (this.selected !== null && this.selected.number !== null) {
      this.selected = this.tree.leaves[this.selected.number];
      this.reveal(this.selected);
    } else {
      this.selected = null;
      this.begin();
    }
    this.redraw();
  },

  // Shows the graph from its beginning, at an extent at which its labels can be read.
  begin() {
    const { width, height } = this.canvas.getBoundingClientRect();
    Tree.direction = width > Math.max(600, 1.1 * height) ? "LR" : "TB";
    this.tree.root.laid = false;
    lay(this.tree.root);
    const { w, h } = this.tree.root;
    const k = Math.max(Math.min(1, (width - 16) / w, (height - 16) / h), 0.62);
    const start = (room, extent) => Math.max(8, (room - extent * k) / 2);
    this.move(d3.zoomIdentity.translate(start(width, w), start(height, h)).scale(k));
  },

  legend() {
    const box = document.getElementById("legend");
    const entry = (colour, text) => {
      const mark = element("i");
      mark.style.background = colour;
      return element("span", {}, mark, text);
    };
    if (this.colour === "part") {
      const parts = new Set(EQUATIONS.map((equation) => equation.part));
      box.replaceChildren(...[...parts].map((part) => entry(`var(--${part})`, part)));
    } else {
      const what = this.colour === "bytes" ? "more bytes moved"
        : ANATOMY.runs > 0 ? "more time, measured" : "more time, predicted";
      box.replaceChildren(entry("var(--hot)", what));
    }
  },

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  },

  draw() {
    if (this.tree === null || this.canvas.offsetParent === null) return;
    lay(this.tree.root);
    const { ratio, width, height } = sized(this.canvas);
    if (width === 0) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = Theme.get("back");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const { x, y, k } = this.transform;
    context.setTransform(ratio * k, 0, 0, ratio * k, ratio * x, ratio * y);
    const seen = { left: -x / k, top: -y / k, right: (width - x) / k, bottom: (height - y) / k };
    this.drawn = 0;
    this.most = Math.max(...this.tree.root.children.map((child) => this.heat(child)), 1e-300);
    this.total = this.heat(this.tree.root) || 1e-300;
    context.lineWidth = 1 / Math.max(k, 0.4);
    this.inside(context, this.tree.root, 0, 0, seen, k);
    this.marks(context, k);
  },

  heat(node) {
    return this.colour === "bytes" ? node.traffic : node.seconds;
  },

  fill(node) {
    if (this.colour !== "part") {
      // The share of the whole, on a scale that shows small ones too.
      const share = Math.sqrt(this.heat(node) / this.total);
      return d3.interpolateRgb(Theme.get("panel"), Theme.get("hot"))(Math.min(1, share * 1.3));
    }
    let at = node;
    while (at.number === null) at = at.children[0];
    return Theme.get(EQUATIONS[at.number].part);
  },

  // Draws the edges and boxes in an open group whose corner is at (x, y).
  inside(context, node, x, y, seen, k) {
    context.strokeStyle = Theme.get("edge");
    context.beginPath();
    for (const { points } of node.lines) {
      const ys = [points[0][1] + y, points[points.length - 1][1] + y];
      if (Math.min(...ys) > seen.bottom || Math.max(...ys) < seen.top) continue;
      context.moveTo(points[0][0] + x, points[0][1] + y);
      for (let n = 1; n < points.length - 1; n += 1) {
        const [a, b] = [points[n], points[n + 1]];
        const last = n === points.length - 2;
        const end = last ? b : [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
        context.quadraticCurveTo(a[0] + x, a[1] + y, end[0] + x, end[1] + y);
      }
    }
    context.globalAlpha = 0.7;
    context.stroke();
    context.globalAlpha = 1;
    for (const child of node.children) {
      const [left, top] = [x + child.x, y + child.y];
      if (left > seen.right || top > seen.bottom) continue;
      if (left + child.w < seen.left || top + child.h < seen.top) continue;
      this.box(context, child, left, top, k);
      const small = Math.max(child.w, child.h) * k < 14;
      if (child.number === null && child.open && !small) {
        this.inside(context, child, left, top, seen, k);
      }
    }
  },

  box(context, node, x, y, k) {
    this.drawn += 1;
    const isOpen = node.number === null && node.open;
    context.beginPath();
    context.roundRect(x, y, node.w, node.h, node.number === null ? 7 : 4);
    context.fillStyle = isOpen ? Theme.get("group") : this.fill(node);
    context.fill();
    context.strokeStyle = Theme.get("line");
    context.stroke();
    // A header keeps its extent on the screen while there is room for it.
    if (k < 0.42 && !(node.number === null && node.w * k > 60)) return;
    const size = node.number === null && k < 0.8 ? Math.min(13 / k, node.h / 2.4, 40) : 12;
    context.fillStyle = Theme.get("text");
    const bold = node.number === null ? "600 " : "";
    context.font = `${bold}${size}px system-ui, "DejaVu Sans", sans-serif`;
    context.textBaseline = "middle";
    const room = node.w - 12;
    const fold = node.number === null ? (node.open ? "▾ " : "▸ ") : "";
    const middle = isOpen ? y + Math.max(12, size * 0.7) : y + (node.number === null ? 15 : 13);
    const label = fitted(`${fold}${node.label}`, room, bold === "" ? size : 1.2 * size);
    context.fillText(label, x + 6, middle);
    if (node.number === null && !node.open && k >= 0.42) {
      context.fillStyle = Theme.get("faint");
      context.font = '11px system-ui, "DejaVu Sans", sans-serif';
      const share = this.heat(node) / this.total;
      const more = this.colour === "part" ? "" : `, ${percentText(share)}`;
      const text = `${node.count} equation${node.count === 1 ? "" : "s"}${more}`;
      context.fillText(fitted(text, room, 11), x + 6, y + 32);
    }
  },

  // Marks the selected box, and lines to its operands, its users and its link.
  marks(context, k) {
    const node = this.selected;
    if (node === null || !isShown(node)) return;
    const at = place(node);
    const centre = (box) => [box.x + box.w / 2, box.y + Math.min(box.h / 2, 18)];
    const line = (number, colour, dash) => {
      let other = this.tree.leaves[number];
      while (!isShown(other)) other = other.parent;
      if (other === node) return;
      const [a, b] = [centre(at), centre(place(other))];
      context.beginPath();
      context.setLineDash(dash.map((length) => length / k));
      context.strokeStyle = Theme.get(colour);
      context.lineWidth = 2 / k;
      context.moveTo(...a);
      const bend = Math.max(Math.abs(b[1] - a[1]) * 0.15, 20);
      context.bezierCurveTo(a[0] + bend, a[1], b[0] + bend, b[1], ...b);
      context.stroke();
      const box = place(other);
      context.setLineDash([]);
      context.strokeRect(box.x, box.y, box.w, box.h);
    };
    if (node.number !== null) {
      const equation = EQUATIONS[node.number];
      const ends = [...equation.operands.filter((n) => n >= 0), ...USERS[node.number]];
      ends.slice(0, 60).forEach((number) => line(number, "accent", []));
      const links = equation.link === null ? DERIVED[node.number] : [equation.link];
      links.slice(0, 20).forEach((number) => line(number, "mark", [6, 4]));
    }
    context.lineWidth = 3 / k;
    context.strokeStyle = Theme.get("accent");
    context.strokeRect(at.x, at.y, at.w, at.h);
  },

  // The innermost box at a point of the screen.
  at(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const [px, py] = this.transform.invert(
      [event.clientX - bounds.left, event.clientY - bounds.top]);
    const find = (node, x, y) => {
      for (const child of node.children) {
        const [left, top] = [x + child.x, y + child.y];
        if (px < left || py < top || px > left + child.w || py > top + child.h) continue;
        const isOpen = child.number === null && child.open;
        return (isOpen && find(child, left, top)) || child;
      }
      return null;
    };
    return find(this.tree.root, 0, 0);
  },

  click(event) {
    const node = this.at(event);
    if (node === null) return;
    this.selected = node;
    if (node.number === null) this.toggle(node);
    else this.redraw();
    Details.show(node);
  },

  hover(event) {
    const node = event.buttons > 0 ? null : this.at(event);
    if (node === null || (node.number === null && node.open)) return tip("");
    const lines = node.number === null
      ? [node.label, `${node.count} equations`]
      : [EQUATIONS[node.number].text.slice(0, 200), sourceText(EQUATIONS[node.number])];
    return tip(lines.join("\n"), event.clientX, event.clientY);
  },

  // Folds or unfolds a group. Its header stays where it is on the screen.
  toggle(node) {
    const before = place(node);
    node.open = !node.open;
    changed(node);
    lay(this.tree.root);
    const after = place(node);
    const { k, x, y } = this.transform;
    const moved = d3.zoomIdentity
      .translate(x + k * (before.x - after.x), y + k * (before.y - after.y)).scale(k);
    this.move(moved);
    this.redraw();
  },

  foldAll() {
    const fold = (node) => {
      if (node.number !== null) return;
      node.open = false;
      node.laid = false;
      node.children.forEach(fold);
    };
    const { root } = this.tree;
    fold(root);
    root.open = true;
    this.selected = null;
    Details.start();
    this.begin();
  },

  move(transform) {
    d3.select(this.canvas).call(this.zoom.transform, transform);
  },

  scale(factor) {
    d3.select(this.canvas).call(this.zoom.scaleBy, factor);
  },

  fit() {
    lay(this.tree.root);
    const { width, height } = this.canvas.getBoundingClientRect();
    const { w, h } = this.tree.root;
    const k = Math.min(1.1, width / w, height / h) * 0.97;
    this.move(d3.zoomIdentity.translate((width - w * k) / 2, (height - h * k) / 2).scale(k));
  },

  // Unfolds the groups around a box and brings it to the middle.
  reveal(node) {
    for (let at = node.parent; at !== null; at = at.parent) {
      if (!at.open) {
        at.open = true;
        changed(at);
      }
    }
    lay(this.tree.root);
    const box = place(node);
    const { width, height } = this.canvas.getBoundingClientRect();
    const k = Math.max(this.transform.k, 0.7);
    const top = Math.min(box.h / 2, height / (2 * k) - 20);
    this.move(d3.zoomIdentity
      .translate(width / 2 - k * (box.x + box.w / 2), height / 2 - k * (box.y + top)).scale(k));
    this.redraw();
  },

  // Selects an equation by its number, or a group.
  select(target) {
    const node = typeof target === "number" ? this.tree.leaves[target] : target;
    this.selected = node;
    this.reveal(node);
    Details.show(node);
  },

  key(event) {
    const node = this.selected;
    const number = node === null ? null : node.number;
    const beside = (step) => {
      if (node === null) return this.tree.root.children[0];
      const all = node.parent.children;
      return all[Math.max(0, Math.min(all.length - 1, all.indexOf(node) + step))];
    };
    const through = (numbers) => (numbers.length > 0 ? this.tree.leaves[numbers[0]] : null);
    const actions = {
      ArrowLeft: () => this.select(beside(-1)),
      ArrowRight: () => this.select(beside(1)),
      ArrowUp: () => this.step(number === null ? node && node.parent
        : through(EQUATIONS[number].operands.filter((n) => n >= 0))),
      ArrowDown: () => this.step(number === null ? node && node.open && node.children[0]
        : through(USERS[number])),
      Enter: () => {
        if (node !== null && number === null) {
          this.toggle(node);
          Details.show(node);
        }
      },
      l: () => {
        if (number === null) return;
        const { link } = EQUATIONS[number];
        this.step(link === null ? through(DERIVED[number]) : this.tree.leaves[link]);
      },
      "+": () => this.scale(1.6),
      "-": () => this.scale(1 / 1.6),
      0: () => this.fit(),
    };
    if (actions[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      actions[event.key]();
    }
  },

  step(node) {
    if (node && node.parent !== null) this.select(node);
  },
};

// The text, shortened to the room.
function fitted(text, room, size) {
  const most = Math.max(1, Math.floor(room / (size * 0.56)));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
