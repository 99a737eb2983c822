"use strict";
// The arena over time: steps on the x axis, addresses on the y axis, a rectangle for each buffer.

const Arena = {
  made: false, transform: d3.zoomIdentity, waiting: false,

  start() {
    if (this.made) return this.redraw();
    this.made = true;
    const memory = ANATOMY.memory;
    const parts = ["parameters", "state", "inputs", "outputs", "constants", "arena", "total"];
    this.canvas = element("canvas", { id: "arena", tabindex: "0", role: "img",
      "aria-label": `The arena over ${KERNELS.length} steps; the buffers of its peak are in the ` +
        "table below" });
    const peak = memory.buffers.filter((buffer) => buffer.at_peak);
    document.getElementById("memory").replaceChildren(
      element("div", { class: "scroll" }, element("table", { id: "spaces" },
        element("thead", {}, element("tr", {}, parts.map((name) => element("th",
          { scope: "col" }, name === "total" ? "in all" : name)))),
        element("tbody", {}, element("tr", {}, parts.map((name) => element("td",
          { title: `${memory[name].toLocaleString("en")} bytes` }, bytesText(memory[name])))))),
      ),
      element("h2", {}, "Arena over time"),
      element("p", {}, memory.buffers.length === 0 ? "The arena is empty."
        : "A rectangle is a buffer: from the step that writes it to the last that reads it, at " +
          "its bytes of the arena. Strong colours are needed at the peak. Turn the wheel to " +
          "zoom, drag to move, double-click to see all; a click shows the kernel."),
      this.canvas,
      element("h2", {}, `Peak: ${bytesText(memory.peak)} at step ${memory.peak_step}`),
      element("p", {}, KERNELS.length === 0 ? "There is no step."
        : `The step runs ${KERNELS[memory.peak_step].name}. The arena is ` +
          `${percentText(memory.arena / Math.max(1, memory.peak) - 1)} larger than the peak.`),
      sortable("peak", [
        { name: "Buffer", of: (b) => b.name, kind: "name", go: (b) => showKernel(b.first) },
        { name: "Bytes", of: (b) => b.bytes, text: (b) => bytesText(b.bytes), first: true },
        { name: "Address", of: (b) => b.offset, text: (b) => b.offset.toLocaleString("en") },
        { name: "From step", of: (b) => b.first },
        { name: "To step", of: (b) => b.last },
      ], peak),
    );
    const zoom = d3.zoom().scaleExtent([1, 2000]).clickDistance(5).on("zoom", (event) => {
      this.transform = event.transform;
      this.redraw();
    });
    this.zoom = zoom;
    const canvas = d3.select(this.canvas).call(zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("dblclick", () => canvas.call(zoom.transform, d3.zoomIdentity));
    this.canvas.addEventListener("mousemove", (event) => {
      const buffer = event.buttons > 0 ? null : this.at(event);
      tip(buffer === null ? "" : `${buffer.name}\n${bytesText(buffer.bytes)}, steps ` +
        `${buffer.first} to ${buffer.last}`, event.clientX, event.clientY);
    });
    this.canvas.addEventListener("mouseleave", () => tip(""));
    this.canvas.addEventListener("click", (event) => {
      const buffer = this.at(event);
      if (buffer !== null) showKernel(buffer.first);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const factor = { "+": 1.6, "-": 1 / 1.6 }[event.key];
      if (factor) canvas.call(zoom.scaleBy, factor);
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60],
        ArrowDown: [0, -60] }[event.key];
      if (step) {
        event.preventDefault();
        const { k } = this.transform;
        canvas.call(zoom.translateBy, step[0] / k, step[1] / k);
      }
    });
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    return this.redraw();
  },

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  },

  // Pixels of a step and of an address.
  scales(width, height) {
    const { x, y, k } = this.transform;
    const steps = Math.max(1, KERNELS.length);
    const bytes = Math.max(1, ANATOMY.memory.arena);
    return {
      x: (step) => x + k * (step / steps) * width,
      y: (address) => y + k * (1 - address / bytes) * height,
    };
  },

  draw() {
    if (this.canvas.offsetParent === null) return;
    const { ratio, width, height } = sized(this.canvas);
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = Theme.get("back");
    context.fillRect(0, 0, width, height);
    const scale = this.scales(width, height);
    context.lineWidth = 0.5;
    const named = [];
    ANATOMY.memory.buffers.forEach((buffer, n) => {
      const [left, right] = [scale.x(buffer.first), scale.x(buffer.last + 1)];
      const [top, bottom] = [scale.y(buffer.offset + buffer.bytes), scale.y(buffer.offset)];
      if (right < 0 || left > width || bottom < 0 || top > height) return;
      if (right - left < 0.3 && bottom - top < 0.3) return;
      const light = Theme.get(buffer.at_peak ? "buffer-full" : "buffer-light");
      // Consecutive buffers get distant hues.
      const strength = buffer.at_peak ? 52 : 24;
      context.fillStyle = `hsl(${(n * 137.5) % 360}, ${strength}%, ${light})`;
      context.fillRect(left, top, right - left, bottom - top);
      if (bottom - top > 3 && right - left > 3) {
        context.strokeStyle = Theme.get("back");
        context.strokeRect(left, top, right - left, bottom - top);
      }
      if (buffer.at_peak && bottom - top > 13 && right - left > 60) {
        named.push([buffer, Math.max(left, 0), Math.min(right, width), (top + bottom) / 2]);
      }
    });
    context.strokeStyle = Theme.get("mark");
    context.lineWidth = 1.5;
    context.beginPath();
    const peak = scale.x(ANATOMY.memory.peak_step + 0.5);
    context.moveTo(peak, 0);
    context.lineTo(peak, height);
    context.stroke();
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = "middle";
    context.fillStyle = Theme.isDark() ? "#ffffff" : "#000000";
    for (const [buffer, left, right, middle] of named) {
      context.fillText(fitted(buffer.name, right - left - 6, 11), left + 4, middle);
    }
    context.fillStyle = Theme.get("mark");
    context.fillText("peak", Math.min(peak + 4, width - 30), 9);
  },

  at(event) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - left, event.clientY - top];
    const scale = this.scales(width, height);
    const found = ANATOMY.memory.buffers.filter((b) => px >= scale.x(b.first)
      && px <= scale.x(b.last + 1) && py >= scale.y(b.offset + b.bytes) && py <= scale.y(b.offset));
    return found.length > 0 ? found[found.length - 1] : null;
  },
};
