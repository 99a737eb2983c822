"use strict";
// Data of the page, texts of numbers, elements, colours of the theme.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ANATOMY = DATA.anatomy;
const { equations: EQUATIONS, kernels: KERNELS } = ANATOMY;

// An element with attributes, event listeners (on…) and children. Texts are never parsed as HTML.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

function bytesText(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? n : n.toFixed(n < 10 ? 2 : 1)} ${units[unit]}`;
}

function countText(n) {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6]]) {
    if (n >= size) return `${(n / size).toFixed(n / size < 10 ? 2 : 1)} ${unit}`;
  }
  return n.toLocaleString("en").replace(/,/g, "\u202f");
}

function timeText(seconds) {
  if (seconds === null || seconds === undefined) return "";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (seconds >= size) return `${(seconds / size).toPrecision(3)} ${unit}`;
  }
  return `${(seconds / 1e-9).toPrecision(3)} ns`;
}

function percentText(part) {
  return `${(100 * part).toFixed(1)} %`;
}

// The name of an equation's first result: `%12`.
function resultName(number) {
  const found = /^%[^:,\s]+/.exec(EQUATIONS[number].text);
  return found ? found[0] : `#${number}`;
}

function sourceText(equation) {
  return equation.file === null ? "unknown" : `${ANATOMY.files[equation.file]}:${equation.line}`;
}

function moduleText(equation) {
  return equation.module === null ? "" : ANATOMY.modules[equation.module];
}

// Seconds of a kernel in one run of the function: measured, else predicted by the roofline.
function kernelSeconds(kernel) {
  if (ANATOMY.runs > 0) return kernel.seconds || 0;
  return kernel.predicted * kernel.times;
}

// The equations that use each equation, and the backward equations of each forward one.
const USERS = EQUATIONS.map(() => []);
const DERIVED = EQUATIONS.map(() => []);
EQUATIONS.forEach((equation, number) => {
  for (const operand of new Set(equation.operands)) {
    if (operand >= 0) USERS[operand].push(number);
  }
  if (equation.link !== null) DERIVED[equation.link].push(number);
});

// Parts of an equation in the time and traffic of its kernels, which it shares with others.
const SECONDS = EQUATIONS.map(() => 0);
const TRAFFIC = EQUATIONS.map(() => 0);
for (const kernel of KERNELS) {
  const share = 1 / Math.max(1, kernel.equations.length);
  for (const number of kernel.equations) {
    SECONDS[number] += kernelSeconds(kernel) * share;
    TRAFFIC[number] += (kernel.read + kernel.written) * kernel.times * share;
  }
}

// Colours of the theme, by the names of the style sheet's variables.
const Theme = {
  known: new Map(),
  get(name) {
    if (!this.known.has(name)) {
      const style = getComputedStyle(document.documentElement);
      this.known.set(name, style.getPropertyValue(`--${name}`).trim());
    }
    return this.known.get(name);
  },
  set(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.getElementById("theme").textContent = dark ? "Light" : "Dark";
    this.known.clear();
  },
  isDark() {
    return document.documentElement.dataset.theme === "dark";
  },
};

// Gives a canvas the pixels of its extent on the screen. Returns its width and height there.
function sized(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  return { ratio, width, height };
}

function tip(text, x, y) {
  const box = document.getElementById("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - width - 6))}px`;
  box.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - height - 6))}px`;
}
