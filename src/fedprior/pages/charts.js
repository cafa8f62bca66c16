"use strict";
// The chart kit: each kind of chart draws on a canvas of its own. Text from data is only ever drawn.
// page.js, which follows in the same script, has the data, the numbers, the table and the keys.
const charts = []; // what is drawn again when a row is pinned, or the theme or the width changes
const NAMED = 60, SINGLE = 2000; // rows drawn with their names; rows drawn one by one

// ---- axes
function ticks(low, high, number) {
  const rough = (high - low) / Math.max(number, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}
function tick(exact, digits, style) {
  const value = Math.abs(exact) < 1e-12 ? 0 : exact;
  if (style === "percent") return format(value, style, Math.max(0, digits - 2));
  const far = Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-5);
  return far ? value.toExponential(1) : format(value, "number", Math.min(digits, 8));
}
function span(...lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const each of list || []) {
    if (each === null || !Number.isFinite(each)) continue;
    if (each < low) low = each;
    if (each > high) high = each;
  }
  if (low > high) return [0, 1];
  const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 0.5;
  return [low - room, high + room];
}
const scale = ([low, high], from, to) => {
  const map = (value) => from + ((value - low) / (high - low)) * (to - from);
  map.back = (pixel) => low + ((pixel - from) / (to - from)) * (high - low);
  return map;
};

// ---- a chart: a canvas of its own, drawn by one of the kinds below
function start(figure, one) {
  const canvas = make("canvas", undefined, { role: "img", tabindex: "0", "aria-label": label(one) });
  figure.append(canvas);
  const chart = { one, canvas, table: spec.tables[one.rows], cols: spec.tables[one.rows]?.columns, ...kinds[one.kind] };
  if (chart.begin) chart.begin(chart);
  charts.push(chart);
  const legend = chart.legend?.(chart) || [];
  if (legend.length) {
    const list = make("ul", undefined, { class: "legend" });
    legend.forEach(([name, mark]) => {
      const item = make("li"), swatch = make("span", undefined, { class: `swatch ${mark}`, "aria-hidden": "true" });
      item.append(swatch, make("span", name));
      list.append(item);
    });
    canvas.before(list);
  }
  canvas.addEventListener("pointermove", (event) => hover(chart, chart.at(chart, event.offsetX, event.offsetY), event));
  canvas.addEventListener("pointerleave", () => hover(chart, -1));
  canvas.addEventListener("click", (event) => { if (chart.table) pin(chart.table, chart.at(chart, event.offsetX, event.offsetY)); });
  canvas.addEventListener("keydown", (event) => keys(chart, event));
  canvas.addEventListener("blur", () => hover(chart, -1));
}
function label(one) {
  const more = one.rows === undefined ? "" : " Arrow keys step through the rows, Enter pins one; the table below has all numbers.";
  return `${one.title}. ${one.text || ""}${more}`;
}
function draw(chart) {
  const { canvas } = chart, width = Math.max(200, canvas.parentElement.clientWidth), ratio = window.devicePixelRatio || 1;
  const height = chart.tall ? chart.tall(chart, width) : Math.round(Math.min(380, Math.max(240, width * 0.55)));
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d"), known = new Map();
  const color = (name) => { // as light-dark() resolves it here
    if (!known.has(name)) { canvas.style.color = `var(--${name})`; known.set(name, getComputedStyle(canvas).color); }
    return known.get(name);
  };
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  Object.assign(chart, { pen, width, height, color });
  chart.draw(chart);
}
const series = (chart, place) => chart.color(`series${(place % 8) + 1}`);
function axes(chart, xs, ys, options) {
  const { pen, width, height, color } = chart, { xStyle, yStyle, xLabel, yLabel, left, right, names } = options;
  const box = { left: left ?? 58, right: width - (right ?? 12), top: yLabel ? 22 : 10, bottom: height - (xLabel ? 42 : 26) };
  const x = scale(xs, box.left, box.right), y = scale(ys, box.bottom, box.top);
  pen.fillStyle = color("muted");
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  const across = ticks(...xs, (box.right - box.left) / 90);
  if (xStyle !== "none") for (const each of across.found) {
    path(chart, [[x(each), box.top], [x(each), box.bottom]]);
    pen.fillText(tick(each, across.digits, xStyle), x(each), box.bottom + 16);
  }
  pen.textAlign = "right";
  const up = ticks(...ys, (box.bottom - box.top) / 50);
  if (!names) for (const each of up.found) {
    path(chart, [[box.left, y(each)], [box.right, y(each)]]);
    pen.fillText(tick(each, up.digits, yStyle), box.left - 6, y(each) + 4);
  }
  pen.textAlign = "left";
  if (yLabel) pen.fillText(yLabel, 4, 12);
  pen.textAlign = "right";
  if (xLabel) pen.fillText(xLabel, box.right, height - 6);
  return Object.assign(chart, { box, x, y });
}
function path(chart, points, options) {
  const { pen } = chart, { dash, width, stroke } = options || {};
  pen.save();
  if (dash) pen.setLineDash(dash);
  if (width) pen.lineWidth = width;
  if (stroke) pen.strokeStyle = stroke;
  pen.beginPath();
  let open = false;
  for (const [a, b] of points) {
    if (!Number.isFinite(a) || !Number.isFinite(b)) { open = false; continue; }
    open ? pen.lineTo(a, b) : pen.moveTo(a, b);
    open = true;
  }
  pen.stroke();
  pen.restore();
}
function dot(chart, a, b, radius, fill, ring) {
  if (!Number.isFinite(a) || !Number.isFinite(b)) return;
  const { pen } = chart;
  pen.beginPath();
  pen.arc(a, b, radius, 0, 2 * Math.PI);
  if (fill) { pen.fillStyle = fill; pen.fill(); }
  if (ring) { pen.strokeStyle = ring; pen.lineWidth = 1.5; pen.stroke(); }
}
function marked(chart, place) { // the rows that are pinned or hovered, with their color
  const { table, color } = chart;
  for (const [row, ring] of [[table.pin, color("pin")], [table.hover, color("text")]]) if (row >= 0) place(row, ring);
}
function level(chart, value) {
  if (value !== null && value !== undefined)
    path(chart, [[chart.box.left, chart.y(value)], [chart.box.right, chart.y(value)]], { dash: [5, 4], stroke: chart.color("accent") });
}

// ---- the kinds of charts: begin once; tall, draw and legend; at(x, y) and order find rows
const sorted = (values) => values.map((_, i) => i).filter((i) => Number.isFinite(values[i])).sort((a, b) => values[a] - values[b]);
const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const kinds = {
  intervals: {
    begin(chart) {
      const { one, cols } = chart;
      chart.v = cols[one.value].values;
      [chart.lo, chart.hi, chart.o] = [one.lower, one.upper, one.other].map((key) => (key ? cols[key].values : null));
      chart.order = sorted(chart.v);
      chart.place = new Map(chart.order.map((row, i) => [row, i]));
      chart.named = chart.order.length <= NAMED;
      if (chart.named) chart.order.reverse().forEach((row, i) => chart.place.set(row, i));
      chart.range = span(chart.v, chart.lo, chart.hi, chart.order.length > SINGLE ? null : chart.o, chart.lo ? null : [0]);
    },
    legend: ({ one, cols, lo, o, order }) => [
      ...(lo ? [[cols[one.value].label, "dot"]] : [["gain", "fill"], ["loss", "fill loss"]]), ...(lo ? [[order.length > SINGLE ? "intervals: typical and widest" : "interval", "band"]] : []),
      ...(o && order.length <= SINGLE ? [[cols[one.other].label, "ring"]] : []), ...(one.line !== null ? [[one.line_label || "population mean", "dash"]] : [])],
    tall: (chart, width) => (chart.named ? (chart.order.length > 30 ? 15 : 19) * chart.order.length + 36 : Math.round(Math.min(340, Math.max(240, width * 0.4)))),
    draw(chart) {
      const { one, cols, order, named, pen, color, v, lo, hi, o, width } = chart, style = cols[one.value].style;
      if (named) {
        pen.font = "12px system-ui, sans-serif";
        const widest = Math.max(...order.map((row) => pen.measureText(chart.table.names[row]).width), 20);
        const left = Math.min(widest + 14, width * 0.36);
        axes(chart, chart.range, [order.length - 0.5, -0.5], { xStyle: style, left, names: true });
        chart.spot = (row, value) => [chart.x(value), chart.y(chart.place.get(row))];
        pen.textAlign = "right";
        pen.fillStyle = color("text");
        for (const row of order) pen.fillText(fit(pen, chart.table.names[row], left - 14), left - 8, chart.y(chart.place.get(row)) + 4);
      } else {
        axes(chart, [0, order.length], chart.range, { xStyle: "none", yStyle: style, xLabel: `${format(order.length, "whole", 0)} ${chart.table.noun}, in order of ${cols[one.value].label}` });
        chart.spot = (row, value) => [chart.x(chart.place.get(row) + 0.5), chart.y(value)];
      }
      const base = lo ? one.line : 0;
      if (base !== null) named ? path(chart, [[chart.x(base), chart.box.top], [chart.x(base), chart.box.bottom]], { dash: [5, 4], stroke: color("accent") }) : level(chart, base);
      if (order.length > SINGLE) this.bands(chart);
      else for (const row of order) {
        const thick = named ? 6 : Math.max(1, Math.min(5, 0.7 * (chart.x(1) - chart.x(0))));
        const fill = lo ? color("band") : color(v[row] < 0 ? "loss" : "gain");
        path(chart, [chart.spot(row, lo ? lo[row] : 0), chart.spot(row, lo ? hi[row] : v[row])], { width: lo ? thick : 2 * thick, stroke: fill });
        const size = named ? 4 : Math.max(1.2, Math.min(3, thick));
        if (o) dot(chart, ...chart.spot(row, o[row]), size, null, color("series2"));
        if (lo) dot(chart, ...chart.spot(row, v[row]), size, color("series1"));
      }
      marked(chart, (row, ring) => { if (chart.place.has(row)) dot(chart, ...chart.spot(row, v[row]), 6, null, ring); });
    },
    bands(chart) {
      const { order, v, lo, hi, color, pen, box } = chart, bins = Math.min(400, Math.floor(box.right - box.left));
      const cut = (k) => order.slice(Math.floor((k * order.length) / bins), Math.floor(((k + 1) * order.length) / bins));
      const parts = Array.from({ length: bins }, (_, k) => cut(k)).filter((part) => part.length);
      const wide = (box.right - box.left) / parts.length;
      parts.forEach((part, k) => {
        const strip = (low, high, fill) => { pen.fillStyle = fill; pen.fillRect(box.left + k * wide, Math.min(chart.y(low), chart.y(high)), wide + 0.5, Math.max(1, Math.abs(chart.y(low) - chart.y(high)))); };
        const centre = middle(part.map((row) => v[row]));
        if (!lo) return strip(0, centre, color(centre < 0 ? "loss" : "gain"));
        strip(part.reduce((a, row) => Math.min(a, lo[row]), Infinity), part.reduce((a, row) => Math.max(a, hi[row]), -Infinity), color("faint"));
        strip(middle(part.map((row) => lo[row])), middle(part.map((row) => hi[row])), color("band"));
      });
      if (lo) path(chart, parts.map((part, k) => [box.left + (k + 0.5) * wide, chart.y(middle(part.map((row) => v[row])))]), { width: 2, stroke: color("series1") });
    },
    at(chart, a, b) {
      const i = chart.named ? Math.round(chart.y.back(b)) : Math.floor(chart.x.back(a));
      return chart.order[i] ?? -1;
    },
    shown: ({ one }) => [one.value, one.other, one.lower, one.upper],
  },
  scatter: {
    begin(chart) {
      const { one, cols } = chart;
      chart.a = cols[one.x].values;
      chart.b = cols[one.y].values;
      chart.order = sorted(chart.a).filter((row) => Number.isFinite(chart.b[row]));
      chart.shade = one.shade ? cols[one.shade] : null;
      chart.words = chart.shade?.style === "text" ? [...new Set(chart.shade.values)] : null;
      chart.reach = chart.shade && !chart.words ? span(chart.shade.values) : null;
    },
    legend: ({ one, words, shade }) => [...(words ? words.map((word, i) => [word, `block s${(i % 8) + 1}`]) : shade ? [[`${shade.label}: low to high`, "ramp"]] : []),
      ...(one.diagonal ? [["equal", "dash grey"]] : []), ...(one.line !== null ? [[one.line_label || "population mean", "dash"]] : []), ...(one.margin ? [[one.margin.name, "fill accent"]] : [])],
    draw(chart) {
      const { one, cols, a, b, color, pen, order } = chart, room = one.margin ? Math.min(90, chart.width * 0.16) : 0;
      axes(chart, span(a), span(b), { xStyle: cols[one.x].style, yStyle: cols[one.y].style, xLabel: cols[one.x].label, yLabel: cols[one.y].label, right: 12 + room });
      const { x, y, box } = chart, size = order.length > 5000 ? 1.2 : order.length > 500 ? 2.4 : 4;
      if (one.margin) this.margin(chart, room);
      pen.save();
      pen.beginPath();
      pen.rect(box.left, box.top - 6, box.right - box.left + 6, box.bottom - box.top + 12);
      pen.clip();
      if (one.diagonal) path(chart, [x.back(box.left), x.back(box.right)].map((each) => [x(each), y(each)]), { dash: [3, 3], stroke: color("muted") });
      level(chart, one.line);
      pen.globalAlpha = order.length > 2000 ? 0.5 : 0.85;
      const names = ["ramp1", "ramp2", "ramp3", "ramp4", "ramp5"], colors = chart.words ? chart.words.map((_, i) => series(chart, i)) : chart.reach ? names.map(color) : [color("series1")];
      const places = colors.map(() => []), many = order.length > 5000; // of one color together: changing it takes time
      for (const row of order) places[this.bucket(chart, row)].push(row);
      places.forEach((rows, i) => {
        pen.fillStyle = colors[i];
        for (const row of rows) many ? pen.fillRect(x(a[row]) - size, y(b[row]) - size, 2 * size, 2 * size) : dot(chart, x(a[row]), y(b[row]), size, colors[i]);
      });
      pen.restore();
      marked(chart, (row, ring) => dot(chart, x(a[row]), y(b[row]), 7, null, ring));
    },
    bucket({ words, reach, shade }, row) {
      const value = shade?.values[row];
      if (words) return words.indexOf(value);
      return reach ? Math.max(0, Math.min(4, Math.floor((5 * (value - reach[0])) / (reach[1] - reach[0])))) || 0 : 0;
    },
    margin(chart, room) {
      const { one, y, box, pen, color } = chart, foot = box.right + 6, top = Math.max(...one.margin.y.filter(Number.isFinite));
      pen.save();
      pen.beginPath();
      pen.rect(foot, box.top, room, box.bottom - box.top);
      pen.clip();
      pen.fillStyle = color("accent");
      pen.globalAlpha = 0.35;
      pen.beginPath();
      pen.moveTo(foot, y(one.margin.x[0]));
      one.margin.x.forEach((value, i) => pen.lineTo(foot + ((room - 8) * (one.margin.y[i] ?? 0)) / top, y(value)));
      pen.lineTo(foot, y(one.margin.x.at(-1)));
      pen.fill();
      pen.restore();
    },
    at({ order, a, b, x, y }, px, py) {
      let best = -1, least = 400;
      for (const row of order) { const far = (x(a[row]) - px) ** 2 + (y(b[row]) - py) ** 2; if (far < least) [least, best] = [far, row]; }
      return best;
    },
    shown: ({ one }) => [one.x, one.y, one.shade],
  },
  curves: {
    begin(chart) { chart.grid = [...new Set(chart.one.curves.flatMap((each) => each.x))].sort((a, b) => a - b); chart.order = chart.grid.map((_, i) => i); },
    legend: ({ one }) => [...one.curves.map((each, i) => [each.name, `s${(i % 8) + 1}${each.dashed ? " dash" : ""}`]), ...(one.diagonal ? [["perfect", "dash grey"]] : [])],
    draw(chart) {
      const { one, pen, color } = chart, all = one.curves;
      axes(chart, span(...all.map((each) => each.x)), span(...all.flatMap((each) => [each.y, each.lower, each.upper])), { xStyle: one.diagonal ? one.style : "number", yStyle: one.style, xLabel: one.x_label, yLabel: one.y_label });
      const { x, y } = chart;
      if (one.diagonal) path(chart, [[x(0), y(0)], [x(1), y(1)]], { dash: [3, 3], stroke: color("muted") });
      all.forEach((each, i) => {
        const stroke = series(chart, i), point = (list) => (value, k) => [x(value), list[k] === null ? NaN : y(list[k])];
        if (each.lower) {
          pen.fillStyle = stroke;
          pen.globalAlpha = 0.15;
          pen.beginPath();
          [...each.x.map(point(each.upper)), ...each.x.map(point(each.lower)).reverse()].forEach(([a, b]) => pen.lineTo(a, b));
          pen.fill();
          pen.globalAlpha = 1;
        }
        path(chart, each.x.map(point(each.y)), { width: 2, stroke, dash: each.dashed ? [6, 4] : null });
        if (one.dots || each.x.length === 1) each.x.map(point(each.y)).forEach(([a, b]) => dot(chart, a, b, each.x.length === 1 ? 6 : 3, stroke));
      });
      if (chart.over >= 0) path(chart, [[x(chart.grid[chart.over]), chart.box.top], [x(chart.grid[chart.over]), chart.box.bottom]], { stroke: color("muted") });
    },
    at({ grid, x }, px) { let best = -1, least = Infinity; grid.forEach((value, i) => { const far = Math.abs(x(value) - px); if (far < least) [least, best] = [far, i]; }); return best; },
    tell: ({ one, grid }, i) => [`${one.x_label} ${format(grid[i], "number", Number.isInteger(grid[i]) ? 0 : 3)}`, ...one.curves.map((each) => { const k = each.x.indexOf(grid[i]); return k < 0 || each.y[k] === null ? "" : `${each.name}: ${format(each.y[k], one.style, one.style === "percent" ? 1 : 3)}`; }).filter(Boolean)],
  },
  distributions: {
    begin(chart) {
      const { one, cols } = chart;
      chart.range = span(...one.columns.map((key) => cols[key].values));
      chart.order = sorted(cols[one.columns[0]].values);
      chart.bins = one.columns.map((key) => {
        const counts = new Array(40).fill(0), values = cols[key].values.filter(Number.isFinite);
        for (const each of values) counts[Math.min(39, Math.floor((40 * (each - chart.range[0])) / (chart.range[1] - chart.range[0])))]++;
        return { counts, mean: values.reduce((a, b) => a + b, 0) / values.length, most: Math.max(...counts, 1) };
      });
    },
    legend: () => [["mean", "tick"]],
    tall: (chart) => 58 * chart.bins.length + 30,
    draw(chart) {
      const { one, cols, pen, color, bins } = chart;
      axes(chart, chart.range, [bins.length, 0], { xStyle: cols[one.columns[0]].style, left: Math.min(150, chart.width * 0.3), names: true });
      bins.forEach(({ counts, mean, most }, k) => {
        const foot = chart.y(k + 1) - 4, wide = (chart.box.right - chart.box.left) / 40;
        pen.fillStyle = series(chart, k);
        counts.forEach((count, i) => pen.fillRect(chart.box.left + i * wide + 0.5, foot - (44 * count) / most, wide - 1, (44 * count) / most));
        path(chart, [[chart.x(mean), foot - 48], [chart.x(mean), foot + 2]], { width: 2, stroke: color("text") });
        pen.fillStyle = color("text");
        pen.textAlign = "right";
        pen.fillText(fit(pen, cols[one.columns[k]].label, chart.box.left - 12), chart.box.left - 8, foot - 14);
        marked(chart, (row, ring) => dot(chart, chart.x(cols[one.columns[k]].values[row]), foot - 3, 5, color("panel"), ring));
      });
    },
    at: () => -1,
    shown: ({ one }) => one.columns,
  },
  stacked: {
    legend: ({ one }) => Object.keys(one.parts).map((name, i) => [name, name === one.rest ? "block rest" : `block s${(i % 8) + 1}`]),
    tall: ({ one }) => 34 * one.labels.length + 34,
    draw(chart) {
      const { one, pen, color } = chart, names = Object.keys(one.parts), parts = Object.values(one.parts), totals = one.labels.map((_, i) => parts.reduce((sum, part) => sum + part[i], 0));
      axes(chart, [0, Math.max(...totals) || 1], [one.labels.length - 0.5, -0.5], { xStyle: one.style, left: Math.min(170, chart.width * 0.32), names: true });
      one.labels.forEach((name, i) => {
        let from = 0;
        parts.forEach((part, k) => { pen.fillStyle = names[k] === one.rest ? color("edge") : series(chart, k); pen.fillRect(chart.x(from), chart.y(i) - 9, Math.max(0, chart.x(from + part[i]) - chart.x(from) - 1), 18); from += part[i]; });
        pen.fillStyle = color("text");
        pen.textAlign = "right";
        pen.fillText(fit(pen, name, chart.box.left - 12), chart.box.left - 8, chart.y(i) + 4);
      });
    },
    begin(chart) { chart.order = chart.one.labels.map((_, i) => i); },
    at: (chart, a, b) => (chart.one.labels[Math.round(chart.y.back(b))] === undefined ? -1 : Math.round(chart.y.back(b))),
    tell: ({ one }, i) => [one.labels[i], ...Object.entries(one.parts).map(([name, part]) => `${name}: ${format(part[i], one.style, one.style === "percent" ? 1 : 3)}`)],
  },
};
function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let keep = text.length;
  while (keep > 1 && pen.measureText(`${text.slice(0, keep)}…`).width > width) keep--;
  return `${text.slice(0, keep)}…`;
}
