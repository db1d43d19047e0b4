// @ts-check
/**
 * A canvas full of points that can be moved and zoomed.
 *
 * In: a space, points to light up, gestures (see gestures.js). Out: a picture, drawn only when
 * something has changed, and `onview` after each frame so that captions can follow. While the
 * camera moves only as many points are drawn as keep the motion smooth; at rest, all are.
 */

import { FlatPainter, GlPainter } from "./painters.js";
import { isDark, labelColours, token } from "./colours.js";

/** @typedef {import("./colours.js").Rgb} Rgb */
/** @typedef {{points: Uint32Array | number[], colour: Rgb}} Group */

const MIN_ZOOM = 0.5; // 1 shows the whole map
const MAX_ZOOM = 400;
const MAX_FIT_ZOOM = 64; // of what is shown by itself
const MIN_BUDGET = 8000; // points in a frame of motion
const MAX_BUDGET = 4e6;
const PAUSE = 400; // milliseconds after which a frame belongs to another motion
const MAX_ALPHA = 0.85;
const REST = 140; // milliseconds without a gesture until all points are drawn
const CALM = matchMedia("(prefers-reduced-motion: reduce)");

export class Points {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {object} [options]
   * @param {number} [options.maxPoints] draw no more points than this
   * @param {() => void} [options.onview] called after each frame
   * @param {number} [options.dot] size of lit points, 1 as usual
   * @param {{top?: number, right?: number, bottom?: number, left?: number}} [options.inset] CSS pixels at the edges that something covers
   */
  constructor(canvas, { maxPoints = Infinity, onview = () => {}, dot = 1, inset = {} } = {}) {
    this.canvas = canvas;
    this.maxPoints = maxPoints;
    this.onview = onview;
    this.dot = dot;
    this.inset = { top: 0, right: 0, bottom: 0, left: 0, ...inset };
    /** @type {import("./space.js").Space | null} */
    this.space = null;
    /** @type {Group[]} */
    this.groups = [];
    this.cx = 0;
    this.cy = 0;
    this.scale = 1; // CSS pixels for one unit of the map
    this.fitScale = 1;
    this.width = 1;
    this.height = 1;
    this.ratio = 1;
    this.budget = 80000;
    this.isMoving = false;
    this.frames = 0;
    this.fullFrames = 0;
    this.frame = 0;
    this.lastFrame = 0;
    this.isLost = false;
    this.isDisposed = false;
    this.flight = 0;
    this.restTimer = 0;
    this.nLit = 0;
    /** @type {ReturnType<typeof makeGrid> | null} */
    this.grid = null;
    this.painter = painterFor(canvas);
    this.observer = new ResizeObserver(() => this.resize());
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.onTheme = () => this.recolour();
    this.watch();
  }

  watch() {
    this.observer.observe(this.canvas);
    this.theme.addEventListener("change", this.onTheme);
    this.canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      this.isLost = true;
    });
    this.canvas.addEventListener("webglcontextrestored", () => {
      if (this.isDisposed) return;
      this.isLost = false;
      this.painter = painterFor(this.canvas);
      this.upload();
    });
  }

  dispose() {
    this.isDisposed = true;
    this.observer.disconnect();
    this.theme.removeEventListener("change", this.onTheme);
    cancelAnimationFrame(this.frame);
    cancelAnimationFrame(this.flight);
    clearTimeout(this.restTimer);
    this.painter.dispose();
  }

  /** @param {import("./space.js").Space} space */
  load(space) {
    this.space = space;
    this.resize();
    this.fit(space.header.bounds, 0);
    this.upload();
  }

  upload() {
    if (!this.space) return;
    this.painter.load(this.space.xy, this.space.label);
    this.recolour();
  }

  recolour() {
    if (!this.space) return;
    this.painter.colours(labelColours(this.space), token("--point"));
    this.light(this.groups);
  }

  /**
   * Light these points up and fade the others; an empty list lights all.
   * @param {Group[]} groups
   */
  light(groups) {
    this.groups = groups;
    const n = groups.reduce((sum, group) => sum + group.points.length, 0);
    const xy = new Float32Array(2 * n);
    const ids = new Uint32Array(n);
    let k = 0;
    groups.forEach((group, g) => {
      for (const i of group.points) {
        xy[2 * k] = this.space?.xy[2 * i] || 0;
        xy[2 * k + 1] = this.space?.xy[2 * i + 1] || 0;
        ids[k] = g;
        k += 1;
      }
    });
    this.nLit = n;
    if (!this.isLost)
      this.painter.lit(
        xy,
        ids,
        groups.map((group) => group.colour),
      );
    this.redraw();
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    if (box.width === this.width && box.height === this.height && ratio === this.ratio) return;
    const fitted = Math.abs(this.scale / this.fitScale - 1) < 0.01;
    this.width = box.width;
    this.height = box.height;
    this.ratio = ratio;
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
    if (this.space) {
      this.fitScale = this.scaleFor(this.space.header.bounds);
      if (fitted) this.fit(this.space.header.bounds, 0);
    }
    this.draw();
  }

  /** @param {number[]} bounds */
  scaleFor([x0, y0, x1, y1]) {
    const { top, right, bottom, left } = this.inset;
    const margin = Math.min(40, this.width * 0.05);
    const room = (/** @type {number} */ size) => Math.max(40, size - 2 * margin);
    return Math.min(
      room(this.width - left - right) / (x1 - x0 || 1),
      room(this.height - top - bottom) / (y1 - y0 || 1),
    );
  }

  /** Show these bounds. @param {number[]} bounds @param {number} [time] in milliseconds */
  fit(bounds, time = 450) {
    const whole = this.space?.header.bounds;
    const limit = whole ? MAX_FIT_ZOOM * this.scaleFor(whole) : Infinity;
    const scale = Math.min(this.scaleFor(bounds), limit);
    if (bounds === whole) this.fitScale = scale;
    const { top, right, bottom, left } = this.inset;
    this.fly(
      (bounds[0] + bounds[2] + (right - left) / scale) / 2,
      (bounds[1] + bounds[3] + (top - bottom) / scale) / 2,
      scale,
      time,
    );
  }

  /**
   * Go to a place.
   * @param {number} cx
   * @param {number} cy
   * @param {number} scale
   * @param {number} [time]
   */
  fly(cx, cy, scale, time = 450) {
    cancelAnimationFrame(this.flight);
    const from = { cx: this.cx, cy: this.cy, log: Math.log(this.scale) };
    const step = (/** @type {number} */ part) => {
      const ease = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) * (1 - part);
      this.set(
        from.cx + (cx - from.cx) * ease,
        from.cy + (cy - from.cy) * ease,
        Math.exp(from.log + (Math.log(scale) - from.log) * ease),
      );
    };
    if (!time || CALM.matches) return step(1);
    const start = performance.now();
    const tick = (/** @type {number} */ now) => {
      const part = Math.min(1, Math.max(0, (now - start) / time));
      step(part);
      if (part < 1) this.flight = requestAnimationFrame(tick);
    };
    this.flight = requestAnimationFrame(tick);
  }

  /** @param {number} cx @param {number} cy @param {number} scale */
  set(cx, cy, scale) {
    const [x0, y0, x1, y1] = this.space?.header.bounds || [-1, -1, 1, 1];
    this.cx = clamp(cx, x0, x1);
    this.cy = clamp(cy, y0, y1);
    this.scale = this.allowedScale(scale);
    this.isMoving = true;
    clearTimeout(this.restTimer);
    this.restTimer = window.setTimeout(() => {
      this.isMoving = false;
      this.redraw();
    }, REST);
    this.redraw();
  }

  /** @param {number} scale */
  allowedScale(scale) {
    return clamp(scale, MIN_ZOOM * this.fitScale, MAX_ZOOM * this.fitScale);
  }

  /** Move by CSS pixels. @param {number} dx @param {number} dy */
  pan(dx, dy) {
    cancelAnimationFrame(this.flight);
    this.set(this.cx - dx / this.scale, this.cy + dy / this.scale, this.scale);
  }

  /**
   * Zoom by a factor, a place on the canvas staying where it is.
   * @param {number} factor
   * @param {number} [x]
   * @param {number} [y]
   */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    cancelAnimationFrame(this.flight);
    const scale = this.allowedScale(this.scale * factor);
    const dx = x - this.width / 2;
    const dy = this.height / 2 - y;
    this.set(this.cx + dx / this.scale - dx / scale, this.cy + dy / this.scale - dy / scale, scale);
  }

  /** @param {number} x @param {number} y @returns {[number, number]} CSS pixels on the canvas */
  toScreen(x, y) {
    return [
      (x - this.cx) * this.scale + this.width / 2,
      this.height / 2 - (y - this.cy) * this.scale,
    ];
  }

  /** @param {number} x @param {number} y @returns {[number, number]} */
  toMap(x, y) {
    return [
      (x - this.width / 2) / this.scale + this.cx,
      (this.height / 2 - y) / this.scale + this.cy,
    ];
  }

  redraw() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  /**
   * Draw a frame; while the camera moves, adapt the number of points to the time it takes.
   * @param {number} now
   */
  tick(now) {
    const elapsed = now - this.lastFrame;
    this.frame = 0;
    this.lastFrame = now;
    if (this.isMoving && elapsed < PAUSE) {
      this.budget = clamp(this.budget * budgetFactor(elapsed), MIN_BUDGET, MAX_BUDGET);
    }
    this.draw();
  }

  draw() {
    if (!this.space || this.isLost || this.isDisposed) return;
    const total = Math.min(this.space.n, this.maxPoints);
    const n = this.isMoving ? Math.min(total, Math.round(this.budget)) : total;
    this.painter.draw(this.camera(), this.look(n, total));
    this.frames += 1;
    if (n === total) this.fullFrames += 1;
    this.onview();
  }

  /** Return the camera in device pixels. */
  camera() {
    const { width, height } = this.canvas;
    return { cx: this.cx, cy: this.cy, scale: this.scale * this.ratio, width, height };
  }

  /**
   * Return the size and opacity of points: many are small and faint, and fewer stand for all.
   * @param {number} n points that are drawn
   * @param {number} total
   */
  look(n, total) {
    const zoom = Math.max(1, this.scale / this.fitScale);
    const size = this.ratio * Math.min(9, dotSize(total) * zoom ** 0.4);
    const area = this.ratio ** 2 * this.width * this.height * zoom ** 2;
    const cover = (total * size ** 2) / area;
    const alpha = clamp(0.42 / Math.sqrt(cover), 0.16, MAX_ALPHA);
    const enlargement = Math.min(2, Math.sqrt(total / n));
    const hasLit = this.groups.length > 0;
    const fading = isDark() ? 0.4 : 0.45;
    return {
      n,
      size: size * Math.sqrt(enlargement),
      alpha: Math.min(MAX_ALPHA, alpha * enlargement) * (hasLit ? fading : 1),
      dim: hasLit ? 0.85 : 0,
      litSize: this.litSize(size),
    };
  }

  /** Few lit points are large, many are small. @param {number} size */
  litSize(size) {
    const decades = Math.log10(this.nLit || 1);
    const pixels = clamp(13 - 3.2 * decades, 2.2, 10);
    return Math.max(size * 1.25, this.dot * this.ratio * pixels);
  }

  /** Wait until the last frame is on the canvas; for measuring. */
  finish() {
    this.painter.finish();
  }

  /**
   * The point nearest to a place on the canvas, or -1 if none is within `reach` CSS pixels.
   * @param {number} x @param {number} y @param {number} [reach]
   */
  pick(x, y, reach = 12) {
    if (!this.space) return -1;
    const grid = this.grid?.space === this.space ? this.grid : makeGrid(this.space);
    this.grid = grid;
    const [mx, my] = this.toMap(x, y);
    const r = reach / this.scale;
    let best = r * r;
    let nearest = -1;
    grid.near(mx, my, r, (i) => {
      const distance = (grid.xy[2 * i] - mx) ** 2 + (grid.xy[2 * i + 1] - my) ** 2;
      if (distance >= best) return;
      best = distance;
      nearest = i;
    });
    return nearest;
  }

  /** Points inside a polygon of CSS pixels. @param {[number, number][]} polygon */
  within(polygon) {
    if (!this.space || polygon.length < 3) return [];
    const corners = polygon.map(([x, y]) => this.toMap(x, y));
    const xs = corners.map(([x]) => x);
    const ys = corners.map(([, y]) => y);
    const x0 = Math.min(...xs);
    const x1 = Math.max(...xs);
    const y0 = Math.min(...ys);
    const y1 = Math.max(...ys);
    const { xy, n } = this.space;
    const points = [];
    for (let i = 0; i < n; i += 1) {
      const x = xy[2 * i];
      const y = xy[2 * i + 1];
      const isNear = x >= x0 && x <= x1 && y >= y0 && y <= y1;
      if (isNear && isWithin(corners, x, y)) points.push(i);
    }
    return points;
  }
}

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/**
 * Fewer points after a slow frame, more after a fast one.
 * @param {number} elapsed in milliseconds
 */
function budgetFactor(elapsed) {
  if (elapsed > 34) return 0.85;
  return elapsed < 22 ? 1.1 : 1;
}

/** Return the size of a dot in CSS pixels. @param {number} total of the dots */
function dotSize(total) {
  if (total > 100_000) return 1.3;
  if (total > 20_000) return 1.8;
  return total > 4000 ? 2.6 : 4;
}

/** @param {HTMLCanvasElement} canvas */
function painterFor(canvas) {
  if (new URL(location.href).searchParams.get("renderer") === "2d") return new FlatPainter(canvas);
  try {
    return new GlPainter(canvas);
  } catch {
    return new FlatPainter(canvas);
  }
}

/** @param {[number, number][]} corners @param {number} x @param {number} y */
function isWithin(corners, x, y) {
  let isInside = false;
  let [xBefore, yBefore] = corners[corners.length - 1];
  for (const [xCorner, yCorner] of corners) {
    const crosses = yCorner > y !== yBefore > y;
    const slope = (xBefore - xCorner) / (yBefore - yCorner);
    if (crosses && x < xCorner + slope * (y - yCorner)) isInside = !isInside;
    [xBefore, yBefore] = [xCorner, yCorner];
  }
  return isInside;
}

/** Points in square cells, to find the near ones. @param {import("./space.js").Space} space */
function makeGrid(space) {
  const { n, xy } = space;
  const [x0, y0, x1, y1] = space.header.bounds;
  const side = Math.max(1, Math.min(1024, Math.round(Math.sqrt(n / 3))));
  const column = (/** @type {number} */ x) =>
    Math.max(0, Math.min(side - 1, Math.floor(((x - x0) / (x1 - x0 || 1)) * side)));
  const row = (/** @type {number} */ y) =>
    Math.max(0, Math.min(side - 1, Math.floor(((y - y0) / (y1 - y0 || 1)) * side)));
  const starts = new Uint32Array(side * side + 1);
  const cell = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) {
    cell[i] = row(xy[2 * i + 1]) * side + column(xy[2 * i]);
    starts[cell[i] + 1] += 1;
  }
  for (let c = 0; c < side * side; c += 1) starts[c + 1] += starts[c];
  const next = starts.slice();
  const order = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) order[next[cell[i]]++] = i;
  return {
    space,
    xy,
    /** @param {number} x @param {number} y @param {number} r @param {(i: number) => void} visit */
    near(x, y, r, visit) {
      for (let a = row(y - r); a <= row(y + r); a += 1) {
        const end = starts[a * side + column(x + r) + 1];
        for (let k = starts[a * side + column(x - r)]; k < end; k += 1) visit(order[k]);
      }
    },
  };
}
