// The data of a page, its table, and what a reader does. Everything from data is set as text, never as markup.
const $ = (id) => document.getElementById(id);
const spec = JSON.parse($("spec").textContent);

function make(tag, text, attributes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
}

// ---- data: whole numbers of steps, byte by byte, as pages/pack.py writes them
async function unpack() {
  const text = atob($("data").textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  for (const table of spec.tables) {
    for (const key of Object.keys(table.columns).sort((a, b) => !!table.columns[a].near - !!table.columns[b].near))
      table.columns[key].values = column(table.columns[key], table, bytes);
    table.names = table.columns[table.name].values.map(String);
    table.pin = table.hover = -1;
  }
}

function column(one, table, bytes) {
  const own = bytes.slice(one.start, one.start + one.length), { width, digits } = one;
  if (one.style === "text") return JSON.parse(new TextDecoder().decode(own));
  if (width === 8) return Array.from(new Float64Array(own.buffer));
  const size = table.size, missing = -(2 ** (8 * width - 1)), step = 10 ** digits;
  const near = one.near ? table.columns[one.near].steps : null;
  one.steps = new Float64Array(size);
  const values = new Array(size);
  for (let i = 0; i < size; i++) {
    let whole = 0;
    for (let plane = width - 1; plane >= 0; plane--)
      whole = whole * 256 + (plane === width - 1 ? (own[plane * size + i] << 24) >> 24 : own[plane * size + i]);
    one.steps[i] = whole === missing ? 0 : whole + (near ? near[i] : 0);
    values[i] = whole === missing ? NaN : one.steps[i] / step;
  }
  return values;
}

// ---- numbers as the reader's language writes them
const formats = new Map();
function format(value, style, digits, sign) {
  if (value === null || !Number.isFinite(value)) return "";
  const key = `${style} ${digits} ${sign}`;
  if (!formats.has(key)) {
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    if (style === "percent") options.style = "percent";
    if (style === "number" && digits > 8) Object.assign(options, { notation: "scientific", minimumFractionDigits: 2, maximumFractionDigits: 2 });
    if (sign) options.signDisplay = "exceptZero";
    formats.set(key, new Intl.NumberFormat(navigator.languages, options));
  }
  return formats.get(key).format(value);
}
function cell(one, row) {
  if (one.style === "text") return one.values[row];
  const digits = one.style === "whole" ? 0 : one.style === "percent" ? 1 : one.shown ?? Math.max(0, one.digits - 1);
  return format(one.values[row], one.style, digits);
}
for (const each of document.querySelectorAll("data[data-style]")) {
  const { style, digits, sign } = each.dataset;
  each.textContent = format(Number(each.value), style, style === "whole" ? 0 : Number(digits), sign);
}

// ---- one row at a time: hovered, or pinned until another one is
function tell(chart, row) {
  if (chart.tell) return chart.tell(chart, row);
  const { table } = chart, keys = [...new Set(chart.shown(chart))].filter((key) => key && key !== table.name);
  return [table.names[row], ...keys.map((key) => `${table.columns[key].label}: ${cell(table.columns[key], row)}`)];
}
function hover(chart, row, event) {
  const tip = $("tip"), was = chart.table ? chart.table.hover : chart.over ?? -1;
  if (chart.table) chart.table.hover = row;
  else chart.over = row;
  if (row !== was) again(chart.table, chart);
  tip.hidden = row < 0;
  if (row < 0) return;
  tip.replaceChildren(...tell(chart, row).map((line, i) => make(i ? "span" : "strong", line)));
  const at = chart.canvas.getBoundingClientRect(), x = event ? event.clientX : at.left + at.width / 2, y = event ? event.clientY : at.top + 20;
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - tip.offsetHeight - 8))}px`;
}
function pin(table, row) {
  table.pin = row === table.pin ? -1 : row;
  again(table);
  for (const fill of table.listings || []) fill();
}
function again(table, only) {
  for (const chart of charts) if (chart === only || (table && chart.table === table)) draw(chart);
}
function keys(chart, event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
  const now = chart.table ? chart.table.hover : chart.over ?? -1, last = chart.order.length - 1;
  if (step || event.key === "Home" || event.key === "End") {
    const to = event.key === "Home" ? 0 : event.key === "End" ? last : chart.order.indexOf(now) + step;
    hover(chart, chart.order[Math.max(0, Math.min(last, to))] ?? -1);
    $("live").textContent = $("tip").innerText.replaceAll("\n", ", ");
  } else if (event.key === "Enter" && chart.table && now >= 0) pin(chart.table, now);
  else if (event.key === "Escape") { if (chart.table && chart.table.pin >= 0) pin(chart.table, chart.table.pin); hover(chart, -1); }
  else return;
  event.preventDefault();
}

// ---- the table of all rows: search, sort, pages
const PAGE = 25;
function listing(figure, one, number) {
  const table = spec.tables[one.rows], shown = one.columns.length ? one.columns : Object.keys(table.columns);
  const state = { key: one.order.replace(/^-/, ""), down: one.order.startsWith("-"), query: "", page: 0 };
  const tools = make("div", undefined, { class: "tools" }), field = make("input", undefined, { type: "search", id: `find${number}`, autocomplete: "off" });
  const count = make("span", undefined, { role: "status" }), back = make("button", "Previous", { type: "button" }), next = make("button", "Next", { type: "button" });
  tools.append(make("label", `Search ${table.noun}`, { for: `find${number}` }), field, count, back, next);
  const scroll = make("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": one.title });
  const grid = make("table"), head = make("tr"), body = make("tbody"), top = make("thead");
  for (const key of shown) {
    const column = table.columns[key], th = make("th", undefined, { scope: "col", "data-key": key }), button = make("button", column.label, { type: "button" });
    if (column.style !== "text") th.className = "num";
    button.addEventListener("click", () => { Object.assign(state, { down: state.key === key ? !state.down : column.style !== "text", key, page: 0 }); arrange(); });
    th.append(button);
    head.append(th);
  }
  top.append(head);
  grid.append(top, body);
  scroll.append(grid);
  figure.append(tools, scroll);
  const lower = table.names.map((name) => name.toLowerCase());
  let order = [];
  function arrange() {
    const { values, style } = table.columns[state.key] || { values: null }, query = state.query.toLowerCase();
    order = lower.map((_, i) => i).filter((i) => lower[i].includes(query));
    const words = new Intl.Collator(navigator.languages, { numeric: true }), sign = state.down ? -1 : 1;
    if (values) order.sort((a, b) => {
      if (style === "text") return sign * words.compare(values[a], values[b]);
      const lost = Number.isNaN(values[a]) - Number.isNaN(values[b]); // empty cells last, either way
      return lost || sign * (values[a] - values[b]) || a - b;
    });
    for (const th of head.children) th.setAttribute("aria-sort", th.dataset.key === state.key ? (state.down ? "descending" : "ascending") : "none");
    fill();
  }
  function fill() {
    const from = state.page * PAGE, rows = order.slice(from, from + PAGE), whole = (value) => format(value, "whole", 0);
    if (table.pin >= 0 && !rows.includes(table.pin)) rows.unshift(table.pin);
    body.replaceChildren(...rows.map((row) => {
      const tr = make("tr", undefined, row === table.pin ? { class: "pinned" } : {});
      for (const key of shown) {
        const column = table.columns[key], named = key === table.name, td = make(named ? "th" : "td", named ? undefined : cell(column, row), named ? { scope: "row" } : column.style === "text" ? {} : { class: "num" });
        if (named) {
          const button = make("button", table.names[row].trim() || "(no name)", { type: "button", "aria-pressed": String(row === table.pin) });
          button.addEventListener("click", () => pin(table, row));
          td.append(button);
        }
        tr.append(td);
      }
      return tr;
    }));
    count.textContent = order.length ? `${whole(from + 1)} to ${whole(Math.min(from + PAGE, order.length))} of ${whole(order.length)} ${table.noun}` : `No ${table.noun} match`;
    back.disabled = !state.page;
    next.disabled = from + PAGE >= order.length;
  }
  field.addEventListener("input", () => { Object.assign(state, { query: field.value, page: 0 }); arrange(); });
  back.addEventListener("click", () => { state.page--; fill(); });
  next.addEventListener("click", () => { state.page++; fill(); });
  (table.listings ||= []).push(fill);
  arrange();
}

// ---- light and dark, width, printing, and a run that goes on
const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
function redraw() {
  $("theme").textContent = isDark() ? "Light" : "Dark";
  charts.forEach(draw);
}
function theme(name) {
  name ? (root.dataset.theme = name) : delete root.dataset.theme;
  redraw();
}
async function poll() {
  try {
    const answer = await fetch("version", { cache: "no-store" }), now = await answer.text();
    $("live").textContent = "Live: this page follows the run.";
    if (answer.ok && now !== spec.version) location.reload();
  } catch { $("live").textContent = "The page is no longer served; what it shows may be out of date."; }
}
async function begin() {
  await unpack();
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const number = Number(figure.dataset.chart), one = spec.charts[number];
    one.kind === "listing" ? listing(figure, one, number) : start(figure, one);
  }
  $("theme").hidden = false;
  $("theme").addEventListener("click", () => theme(isDark() ? "light" : "dark"));
  dark.addEventListener("change", redraw);
  new ResizeObserver(() => charts.forEach((chart) => { if (chart.canvas.parentElement.clientWidth !== chart.width) draw(chart); })).observe($("main"));
  let before;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; theme("light"); });
  window.addEventListener("afterprint", () => theme(before));
  redraw();
  root.dataset.ready = "yes";
  if (spec.version) setInterval(poll, 2000);
}
begin().catch((error) => { $("live").textContent = `The charts could not be drawn: ${error.message}`; });
