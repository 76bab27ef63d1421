// Small charts: sparklines, trends, and the timeline of a message's receives.

import { svg } from "./dom.js";
import { count, duration, number, time } from "./format.js";

/** Paths through the known points in a `width` × `height` box, zero at the bottom, with gaps where values are unknown. */
function paths(points, width, height, most) {
  const step = width / Math.max(1, points.length - 1);
  const y = (value) => height - (value / most) * height;
  let line = "";
  let area = "";
  let from = null;
  const close = (index) => {
    if (from === null) return;
    area += `L${(index * step).toFixed(1)} ${height}L${(from * step).toFixed(1)} ${height}Z`;
    from = null;
  };
  points.forEach((value, index) => {
    if (value === null) {
      close(index - 1);
      return;
    }
    const at = `${(index * step).toFixed(1)} ${y(value).toFixed(1)}`;
    line += from === null ? `M${at}` : `L${at}`;
    area += from === null ? `M${at}` : `L${at}`;
    from ??= index;
    // A path with a single point would draw nothing.
    if ((points[index + 1] ?? null) === null && (points[index - 1] ?? null) === null) line += "h0.1";
  });
  close(points.length - 1);
  return { line, area };
}

const LEAST_POINTS = 12;

/** Removes unknown points at the start, so that the trend of a new queue fills the chart. */
export function sinceKnown(points) {
  const first = points.findIndex((value) => value !== null);
  return first < 0 ? [] : points.slice(Math.max(0, Math.min(first, points.length - LEAST_POINTS)));
}

function known(points) {
  return points.filter((value) => value !== null);
}

/** A small chart of the backlog over the last minutes, for a table cell. */
export function sparkline(trend) {
  const points = sinceKnown(trend?.backlog ?? []);
  const values = known(points);
  const width = 120;
  const height = 26;
  const drawing = svg("svg", {
    class: "spark",
    viewBox: `0 -2 ${width + 4} ${height + 4}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": values.length ? describe("Visible", trend.step_s * points.length, values, number) : "No trend yet",
  });
  if (values.length === 0) return drawing;
  const most = Math.max(1, ...values);
  const { line, area } = paths(points, width, height, most);
  drawing.append(svg("path", { class: "spark-area", d: area }), svg("path", { class: "spark-line", d: line }));
  const last = points[points.length - 1];
  if (last !== null) {
    drawing.append(
      svg("circle", { class: "spark-dot", cx: width, cy: (height - (last / most) * height).toFixed(1), r: 2.2 }),
    );
  }
  return drawing;
}

/** A wide chart of one series with a point every `stepS` seconds; `write` formats a value. */
export function trendChart(title, stepS, points, write) {
  const width = 600;
  const height = 110;
  const values = known(points);
  const drawing = svg("svg", {
    class: "chart",
    viewBox: `0 -4 ${width} ${height + 5}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": values.length ? describe(title, stepS * points.length, values, write) : `${title}: no points yet`,
  });
  const most = Math.max(1, ...values);
  for (const share of [0, 0.5, 1]) {
    const y = height - share * height;
    drawing.append(svg("path", { class: "chart-grid", d: `M0 ${y}H${width}` }));
  }
  const { line, area } = paths(points, width, height, most);
  drawing.append(svg("path", { class: "chart-area", d: area }), svg("path", { class: "chart-line", d: line }));
  const last = points[points.length - 1] ?? null;
  if (last !== null) {
    // A line with round ends stays round when the drawing is stretched.
    drawing.append(svg("path", { class: "chart-dot", d: `M${width} ${(height - (last / most) * height).toFixed(1)}h0.1` }));
  }
  return drawing;
}

function describe(title, spanS, values, write) {
  const [first, last] = [values[0], values[values.length - 1]];
  return `${title} over ${duration(spanS)}: from ${write(first)} to ${write(last)}, at most ${write(Math.max(...values))}`;
}

/** A timeline of a message: its receives, how long it was invisible after each, and its releases. */
export function timeline(message, nowMs) {
  const attempts = message.attempts;
  const width = 1000;
  const height = 22;
  const start = Math.min(message.sent_at_ms, attempts[0]?.at_ms ?? nowMs);
  const shown = attempts.length > 0 && attempts[0].at_ms - start > 4 * (nowMs - attempts[0].at_ms + 1) ? attempts[0].at_ms : start;
  const end = Math.max(nowMs, ...attempts.map((attempt) => attempt.end_ms ?? 0));
  const x = (ms) => ((Math.min(Math.max(ms, shown), end) - shown) / Math.max(1, end - shown)) * width;
  const receives = attempts.filter((attempt) => attempt.what === "received").length;
  const drawing = svg("svg", {
    class: "timeline",
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `${count(receives, "receive")} shown, from ${time(shown, nowMs)} to now`,
  });
  drawing.append(svg("path", { class: "timeline-base", d: `M0 ${height / 2}H${width}` }));
  attempts.forEach((attempt, index) => {
    const next = attempts[index + 1]?.at_ms ?? Infinity;
    const from = x(attempt.at_ms);
    if (attempt.what === "released") {
      drawing.append(svg("path", { class: "timeline-released", d: `M${from} 2V${height - 2}` }));
      return;
    }
    const to = x(Math.min(attempt.end_ms ?? Infinity, next, end));
    const over = (attempt.end_ms ?? Infinity) > nowMs && next === Infinity;
    drawing.append(
      svg("rect", {
        class: `timeline-${attempt.what}${over ? " timeline-now" : ""}`,
        x: from,
        y: 3,
        width: Math.max(4, to - from - 2),
        height: height - 6,
      }),
    );
  });
  const nowX = x(nowMs);
  drawing.append(svg("path", { class: "timeline-clock", d: `M${nowX} 0V${height}` }));
  return drawing;
}
