// Clicks through the pages of `ci/deep/report` in headless Chromium, and takes the screenshots.
//
//     node browser.mjs CHROMIUM OPEN_MS ZOOM_MS PICTURES     # in a folder with the two pages

import puppeteer from "puppeteer-core";
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [, , executablePath, openMs, zoomMs, pictures] = process.argv;
let [passed, failed] = [0, 0];

async function check(name, does) {
  try {
    const said = await does();
    passed += 1;
    console.error(`  ${name}${said === undefined ? "" : `: ${said}`}`);
  } catch (error) {
    failed += 1;
    console.error(`  FAILED ${name}: ${error.message}`);
  }
}

function expect(condition, says) {
  if (!condition) throw new Error(says);
}

const browser = await puppeteer.launch({
  executablePath, headless: true, args: ["--no-sandbox", "--force-device-scale-factor=1"],
});
const page = await browser.newPage();
const mistakes = [];
const requests = [];
page.on("pageerror", (error) => mistakes.push(error.message));
page.on("console", (message) => {
  if (message.type() === "error") mistakes.push(message.text());
});
page.on("request", (request) => requests.push(request.url()));
const frame = () => page.evaluate(() => new Promise((done) => {
  requestAnimationFrame(() => requestAnimationFrame(done));
}));
const text = (selector) => page.$eval(selector, (found) => found.textContent);

// Opens a page. Returns the milliseconds until its first picture.
async function open(name) {
  await page.goto("about:blank");
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.setViewport({ width: 1280, height: 800 });
  const begin = performance.now();
  await page.goto(pathToFileURL(path.resolve(name)).href);
  await frame();
  return performance.now() - begin;
}

// The middle of a box on the screen.
function middle(of) {
  return page.evaluate((source) => {
    const node = new Function(`return ${source}`)();
    const box = place(node);
    const { x, y, k } = Graph.transform;
    const canvas = Graph.canvas.getBoundingClientRect();
    const height = node.number === null && node.open ? 22 : box.h;
    return [canvas.left + x + k * (box.x + box.w / 2), canvas.top + y + k * (box.y + height / 2)];
  }, of);
}

async function picture(name) {
  const file = path.join(pictures, `${name}.png`);
  await page.screenshot({ path: file });
  const { size } = fs.statSync(file);
  expect(size < 300_000, `${file} has ${size} bytes`);
}

async function search(words) {
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("/");
  await page.keyboard.type(words);
  await page.waitForSelector("#found li");
}

console.error("GPT-2");
const times = [];
for (let n = 0; n < 3; n += 1) times.push(await open("gpt2.html"));
await check("opens in time", () => {
  times.sort((a, b) => a - b);
  expect(times[1] <= openMs, `${times[1].toFixed(0)} ms`);
  return `${times.map((time) => time.toFixed(0)).join(", ")} ms`;
});
await check("has thousands of equations", async () => {
  const count = await page.evaluate(() => EQUATIONS.length);
  expect(count > 2000, `${count} equations`);
  return count;
});
await check("unfolds and folds by a click", async () => {
  await page.click("#fold");
  await frame();
  const shown = () => page.evaluate(() => {
    const count = (node) => 1 + (node.number === null && node.open
      ? node.children.reduce((total, child) => total + count(child), 0) : 0);
    return count(Graph.tree.root);
  });
  const before = await shown();
  const first = "Graph.tree.root.children[0]";
  await page.mouse.click(...await middle(first));
  await frame();
  expect(await shown() > before, "nothing unfolded");
  await page.mouse.click(...await middle(first));
  await frame();
  expect(await shown() === before, "nothing folded");
});
await check("zooms by the wheel in time", async () => {
  await page.evaluate(() => {
    const { root } = Graph.tree;
    root.open = true;
    openSome(root, 500);
    changed(root);
    const again = (node) => {
      node.laid = false;
      if (node.number === null) node.children.forEach(again);
    };
    again(root);
    Graph.fit();
  });
  await frame();
  const spent = [];
  const area = await (await page.$("#canvas")).boundingBox();
  await page.mouse.move(area.x + area.width / 2, area.y + area.height / 2);
  for (let n = 0; n < 24; n += 1) {
    const before = await page.evaluate(() => {
      window.spent = null;
      const draw = Graph.draw;
      // A step is the handling of the wheel and the drawing of its frame.
      Graph.canvas.addEventListener("wheel", () => { window.begun = performance.now(); },
        { capture: true, once: true });
      Graph.draw = function timed() {
        draw.call(Graph);
        Graph.draw = draw;
        Graph.canvas.getContext("2d").getImageData(0, 0, 1, 1);
        window.spent = performance.now() - window.begun;
      };
      return Graph.transform.k;
    });
    await page.mouse.wheel({ deltaY: n < 12 ? -240 : 240 });
    await page.waitForFunction(() => window.spent !== null);
    spent.push(await page.evaluate(() => window.spent));
    const after = await page.evaluate(() => Graph.transform.k);
    expect(n < 12 ? after > before : after <= before, "the extent does not change");
  }
  const most = Math.max(...spent);
  expect(most <= zoomMs, `${most.toFixed(1)} ms`);
  const mean = spent.reduce((a, b) => a + b) / spent.length;
  return `mean ${mean.toFixed(1)} ms, most ${most.toFixed(1)} ms`;
});
await check("moves by dragging", async () => {
  const before = await page.evaluate(() => Graph.transform.x);
  await page.mouse.move(400, 500);
  await page.mouse.down();
  await page.mouse.move(520, 540, { steps: 4 });
  await page.mouse.up();
  expect(await page.evaluate(() => Graph.transform.x) > before, "nothing moved");
});
await check("searches for an equation", async () => {
  await search("h.3.attn forward dot_general");
  const found = await page.$$eval("#found li", (all) => all.map((one) => one.textContent));
  expect(found.some((one) => one.includes("dot_general")), found.join("\n"));
  await page.keyboard.press("Enter");
  await frame();
  expect((await text("#details h2")).startsWith("dot_general"), await text("#details"));
  expect((await text("#details")).includes("h.3.attn"), await text("#details"));
});
await check("shows the source line", async () => {
  const source = await text("#source");
  expect(/examples\/gpt2_step\.rs:\d+$/.test(source), source);
  return source;
});
await check("clicks through to a kernel and its nest", async () => {
  await search("h.3.mlp gelu forward");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#details [data-kernel]");
  const kernel = await page.evaluate(() => EQUATIONS[Graph.selected.number].kernels
    .find((n) => KERNELS[n].nest !== null));
  await page.click(`#details [data-kernel="${kernel}"]`);
  expect((await text("#details h2")).startsWith("Kernel "), await text("#details"));
  expect((await text("#nest")).includes("parallel"), await text("#details"));
  await page.click("#details [data-equation]");
  expect(await page.$("#source") !== null, "no equation is shown");
});
await check("links forward and backward", async () => {
  const number = await page.evaluate(() => {
    const is = (e, n) => e.op === "dot_general" && e.part === "forward" && DERIVED[n].length > 1;
    const found = EQUATIONS.findIndex(is);
    Graph.select(found);
    return found;
  });
  const there = await page.evaluate((n) => DERIVED[n][0], number);
  await page.click(`#details [data-equation="${there}"]`);
  expect((await text("#details")).includes("backward"), await text("#details"));
  await page.click(`#details [data-equation="${number}"]`);
  await page.focus("#canvas");
  await page.keyboard.press("l");
  expect((await text("#details")).includes("transpose"), await text("#details"));
});
await check("most backward products are linked within their layer", () => page.evaluate(() => {
  const all = EQUATIONS.filter((e) => e.part === "backward" && e.op === "dot_general");
  const good = all.filter((e) => e.link !== null && moduleText(e) !== "");
  if (good.length !== all.length) throw new Error(`${good.length} of ${all.length}`);
  return `${good.length}`;
}));
await check("is used by keys alone", async () => {
  await page.focus("#canvas");
  await page.keyboard.press("Escape");
  await page.keyboard.press("ArrowRight");
  const first = await text("#details h2");
  await page.keyboard.press("ArrowRight");
  expect(first !== await text("#details h2"), "the selection stays");
  const open = await page.evaluate(() => Graph.selected.open);
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => Graph.selected.open) !== open, "nothing folds");
  await page.keyboard.press("0");
});
await check("folds by loop and by source file", async () => {
  for (const mode of ["source", "region", "module"]) {
    await page.select("#mode", mode);
    await frame();
    const labels = await page.evaluate(() => Graph.tree.root.children.map((one) => one.label));
    const wanted = { source: "gpt2_step.rs", region: "forward", module: "forward" }[mode];
    expect(labels.some((label) => label.includes(wanted)), labels.join("\n"));
  }
});
await check("light", async () => {
  await open("gpt2.html");
  await search("h.0.attn softmax forward");
  await page.keyboard.press("Escape");
  await page.evaluate(() => {
    const is = (e) => e.op === "dot_general" && moduleText(e).includes("h.0.attn.c_attn");
    Graph.select(EQUATIONS.findIndex(is));
  });
  await frame();
  await picture("light");
});
await check("dark by a click", async () => {
  const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await colour();
  await page.click("#theme");
  expect(await colour() !== light, light);
  await page.click("#tab-memory");
  await page.evaluate(() => document.getElementById("arena").scrollIntoView({ block: "center" }));
  await frame();
  await picture("dark");
});
await check("dark by the system's choice", async () => {
  await open("gpt2.html");
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await frame();
  expect(await page.evaluate(() => Theme.isDark()), "it is light");
});
await check("the arena shows a kernel by a click", async () => {
  await page.click("#tab-memory");
  await frame();
  const [x, y] = await page.evaluate(() => {
    Arena.canvas.scrollIntoView({ block: "center" });
    const area = Arena.canvas.getBoundingClientRect();
    const scale = Arena.scales(area.width, area.height);
    const wide = (b) => (b.last - b.first) * b.bytes;
    const [b] = [...ANATOMY.memory.buffers].sort((one, other) => wide(other) - wide(one));
    return [area.left + scale.x((b.first + b.last + 1) / 2),
      area.top + scale.y(b.offset + b.bytes / 2)];
  });
  await page.mouse.click(x, y);
  expect((await text("#details h2")).startsWith("Kernel "), await text("#details"));
});
await check("names the buffers of the peak", async () => {
  await page.click("#tab-memory");
  const rows = await page.$$eval("#peak tbody tr", (all) => all.length);
  expect(rows > 3, `${rows} rows`);
  return rows;
});
await check("sorts the kernels", async () => {
  await page.click("#tab-kernels");
  const column = (n) => page.$$eval(`#kernel-table td:nth-child(${n})`,
    (all) => all.map((one) => one.textContent));
  await page.click("#kernel-table th:nth-child(1) button");
  const falling = (await column(1)).map(Number);
  await page.click("#kernel-table th:nth-child(1) button");
  const rising = (await column(1)).map(Number);
  const ordered = (list, sign) => list.every((n, i) => i === 0 || sign * (n - list[i - 1]) >= 0);
  expect(ordered(falling, -1) && ordered(rising, 1) && rising[0] !== falling[0], "not sorted");
});
await check("a narrow window", async () => {
  await page.setViewport({ width: 390, height: 780 });
  await open("gpt2.html");
  await page.setViewport({ width: 390, height: 780 });
  await frame();
  await page.click("#fold");
  await page.mouse.click(...await middle("Graph.tree.root.children[0]"));
  await frame();
  for (const tab of ["graph", "memory", "kernels", "budgets", "precision", "graph"]) {
    await page.click(`#tab-${tab}`);
    await frame();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide <= 390, `${tab} is ${wide} pixels wide`);
  }
  await picture("narrow");
});

console.error("a small network");
await open("network.html");
await check("measured times are shown", async () => {
  await page.click("#tab-kernels");
  expect((await text("#kernels")).includes("measured"), await text("#kernels"));
});
await check("runs lie over each other", async () => {
  await page.click("#tab-training");
  await frame();
  const series = await page.$$eval('[data-curve="loss"] .u-series', (all) => all.length);
  expect(series === 3, `${series} entries in the legend`);
});
await check("the certificate is shown", async () => {
  await page.click("#tab-precision");
  const rows = await page.$$eval("#outputs tbody tr", (all) => all.length);
  expect(rows === 1, `${rows} outputs`);
});
await check("budgets are shown", async () => {
  await page.click("#tab-budgets");
  expect(await page.$("#budget-table tbody tr") !== null, "no plan");
});
await check("nothing fails and nothing is loaded", () => {
  expect(mistakes.length === 0, mistakes.join("\n"));
  const others = requests.filter((url) => !url.startsWith("file:") && url !== "about:blank");
  expect(others.length === 0, others.join("\n"));
});
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
