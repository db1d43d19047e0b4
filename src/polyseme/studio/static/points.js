// @ts-check
/**
 * A canvas full of points that can be moved and zoomed.
 *
 * In: a space, points to light up, gestures (see gestures.js). Out: a picture, drawn only when
 * something has changed, and `onview` after each frame so that captions can follow. While the
 * camera moves only as many points are drawn as keep the motion smooth; at rest, all are.
 *
 * Terms: a point is a number, its place in the space's arrays. Coordinates are the map's own, which
 * lie about -1 to 1 with y upwards, or CSS pixels on the canvas, with y downwards. The scale is CSS
 * pixels for one unit of the map; the zoom is the scale as a multiple of `fitScale`.
 */

import { FlatPainter, GlPainter } from "./painters.js";
import { isDark, labelColours, token } from "./colours.js";

/** @typedef {import("./colours.js").Rgb} Rgb */
/**
 * Points that are lit in a colour.
 * @typedef {{points: Uint32Array | number[], colour: Rgb}} Group
 */

/**
 * CSS pixels at the edges that something covers.
 * @typedef {{top: number, right: number, bottom: number, left: number}} Inset
 */

const MIN_ZOOM = 0.5; // 1 shows the whole map
const MAX_ZOOM = 400;
const MAX_FIT_ZOOM = 64; // of what is shown by itself
const START_BUDGET = 80_000; // points in a frame of motion
const MIN_BUDGET = 8000;
const MAX_BUDGET = 4e6;
const PAUSE = 400; // milliseconds after which a frame belongs to another motion
const MIN_ALPHA = 0.16; // opacity of a point
const MAX_ALPHA = 0.85;
const REST_DELAY = 140; // milliseconds without a gesture until all points are drawn
const REDUCED_MOTION = matchMedia("(prefers-reduced-motion: reduce)");
const CELL_POINTS = 3; // of the grid that finds points, on average
const MAX_CELLS = 1024; // a side

export class Points {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {object} [options]
   * @param {number} [options.maxPoints] draw no more points than this
   * @param {() => void} [options.onview] called after each frame
   * @param {number} [options.dot] size of lit points, as a multiple of the usual one
   * @param {Partial<Inset>} [options.inset]
   */
  constructor(canvas, { maxPoints = Infinity, onview = () => {}, dot = 1, inset = {} } = {}) {
    this.canvas = canvas;
    this.maxPoints = maxPoints;
    this.onview = onview;
    this.litFactor = dot;
    /** @type {Inset} */
    this.inset = { top: 0, right: 0, bottom: 0, left: 0, ...inset };
    /** @type {import("./space.js").Space | null} */
    this.space = null;
    /** @type {Group[]} */
    this.groups = [];
    this.cx = 0; // of the camera, in the map's coordinates
    this.cy = 0;
    this.scale = 1;
    this.fitScale = 1; // at which the whole map is seen
    this.width = 1; // CSS pixels
    this.height = 1;
    this.ratio = 1; // device pixels for a CSS pixel
    this.budget = START_BUDGET; // points that the next frame of motion draws
    this.isMoving = false;
    this.frames = 0; // that were drawn, and those of all points; for tests and measuring
    this.fullFrames = 0;
    this.frame = 0; // request of the next frame; 0 for none
    this.lastFrame = 0; // time of the last one, in milliseconds
    this.isLost = false; // the graphics card has dropped what it held
    this.isDisposed = false;
    this.flight = 0; // request of the next frame of a flight
    this.restTimer = 0;
    this.nLit = 0;
    /** Made when a point is looked for. @type {ReturnType<typeof makeGrid> | null} */
    this.grid = null;
    this.painter = painterFor(canvas);
    this.observer = new ResizeObserver(() => this.resize());
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.onTheme = () => this.recolour();
    this.watch();
  }

  /** Follow the size of the canvas, light and dark, and the graphics card. */
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

  /** Hand the points to the painter. */
  upload() {
    if (!this.space) return;
    this.painter.load(this.space.xy, this.space.label);
    this.recolour();
  }

  /** Take the colours of the style sheet, light or dark. */
  recolour() {
    if (!this.space) return;
    this.painter.setColours(labelColours(this.space), token("--point"));
    this.light(this.groups);
  }

  /**
   * Light these points up and fade the others; an empty list lights all.
   * @param {Group[]} groups
   */
  light(groups) {
    this.groups = groups;
    const nLit = groups.reduce((sum, group) => sum + group.points.length, 0);
    const xy = new Float32Array(2 * nLit);
    const ids = new Uint32Array(nLit);
    let k = 0;
    groups.forEach(({ points }, group) => {
      for (const point of points) {
        xy[2 * k] = this.space?.xy[2 * point] || 0;
        xy[2 * k + 1] = this.space?.xy[2 * point + 1] || 0;
        ids[k] = group;
        k += 1;
      }
    });
    const colours = groups.map((group) => group.colour);
    this.nLit = nLit;
    if (!this.isLost) this.painter.light(xy, ids, colours);
    this.redraw();
  }

  /** Take the size that the canvas has on the page now; what was fitted stays fitted. */
  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    if (box.width === this.width && box.height === this.height && ratio === this.ratio) return;
    const isFitted = Math.abs(this.scale / this.fitScale - 1) < 0.01;
    this.width = box.width;
    this.height = box.height;
    this.ratio = ratio;
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
    if (this.space) {
      this.fitScale = this.scaleFor(this.space.header.bounds);
      if (isFitted) this.fit(this.space.header.bounds, 0);
    }
    this.draw();
  }

  /** Return the scale at which bounds fill the canvas. @param {number[]} bounds x0, y0, x1, y1 */
  scaleFor([x0, y0, x1, y1]) {
    const { top, right, bottom, left } = this.inset;
    const margin = Math.min(40, this.width * 0.05);
    const room = (/** @type {number} */ size) => Math.max(40, size - 2 * margin);
    return Math.min(
      room(this.width - left - right) / (x1 - x0 || 1),
      room(this.height - top - bottom) / (y1 - y0 || 1),
    );
  }

  /**
   * Show these bounds.
   * @param {number[]} bounds x0, y0, x1, y1 in the map's coordinates
   * @param {number} [time] in milliseconds
   */
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
   * Move the camera to a place and a scale, slowly at both ends.
   * @param {number} cx in the map's coordinates
   * @param {number} cy
   * @param {number} scale
   * @param {number} [time] in milliseconds
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
    if (!time || REDUCED_MOTION.matches) return step(1);
    const start = performance.now();
    const tick = (/** @type {number} */ now) => {
      const part = Math.min(1, Math.max(0, (now - start) / time));
      step(part);
      if (part < 1) this.flight = requestAnimationFrame(tick);
    };
    this.flight = requestAnimationFrame(tick);
  }

  /**
   * Put the camera somewhere, within bounds, and draw.
   * @param {number} cx in the map's coordinates
   * @param {number} cy
   * @param {number} scale
   */
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
    }, REST_DELAY);
    this.redraw();
  }

  /** Return the scale that is nearest to one and within the limits. @param {number} scale */
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
   * @param {number} [x] CSS pixels on the canvas; its middle unless given
   * @param {number} [y]
   */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    cancelAnimationFrame(this.flight);
    const scale = this.allowedScale(this.scale * factor);
    const dx = x - this.width / 2;
    const dy = this.height / 2 - y;
    this.set(this.cx + dx / this.scale - dx / scale, this.cy + dy / this.scale - dy / scale, scale);
  }

  /**
   * Return where a place of the map is on the canvas, in CSS pixels.
   * @param {number} x
   * @param {number} y
   * @returns {[number, number]}
   */
  toScreen(x, y) {
    return [
      (x - this.cx) * this.scale + this.width / 2,
      this.height / 2 - (y - this.cy) * this.scale,
    ];
  }

  /**
   * Return the place of the map that lies under CSS pixels of the canvas.
   * @param {number} x
   * @param {number} y
   * @returns {[number, number]}
   */
  toMap(x, y) {
    return [
      (x - this.width / 2) / this.scale + this.cx,
      (this.height / 2 - y) / this.scale + this.cy,
    ];
  }

  /** Draw with the next frame of the browser, once. */
  redraw() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  /**
   * Draw a frame; while the camera moves, adapt the number of points to the time it takes.
   * @param {number} now in milliseconds
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
   * @param {number} total points that they stand for
   * @returns {import("./painters.js").Look}
   */
  look(n, total) {
    const zoom = Math.max(1, this.scale / this.fitScale);
    const size = this.ratio * Math.min(9, dotSize(total) * zoom ** 0.4);
    const area = this.ratio ** 2 * this.width * this.height * zoom ** 2;
    const cover = (total * size ** 2) / area; // layers of dots, were they spread evenly
    const alpha = clamp(0.42 / Math.sqrt(cover), MIN_ALPHA, MAX_ALPHA);
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

  /** Few lit points are large, many are small. @param {number} size of points that are not lit */
  litSize(size) {
    const decades = Math.log10(this.nLit || 1);
    const pixels = clamp(13 - 3.2 * decades, 2.2, 10);
    return Math.max(size * 1.25, this.litFactor * this.ratio * pixels);
  }

  /** Wait until the last frame is on the canvas; for measuring. */
  finish() {
    this.painter.finish();
  }

  /**
   * Return the point nearest to a place on the canvas, or -1 if none is within reach.
   * @param {number} x in CSS pixels
   * @param {number} y
   * @param {number} [reach] CSS pixels
   */
  pick(x, y, reach = 12) {
    if (!this.space) return -1;
    const { xy } = this.space;
    const grid = this.grid?.space === this.space ? this.grid : makeGrid(this.space);
    this.grid = grid;
    const [mapX, mapY] = this.toMap(x, y);
    const radius = reach / this.scale;
    let leastSquare = radius * radius;
    let nearest = -1;
    grid.visitNear(mapX, mapY, radius, (point) => {
      const square = (xy[2 * point] - mapX) ** 2 + (xy[2 * point + 1] - mapY) ** 2;
      if (square >= leastSquare) return;
      leastSquare = square;
      nearest = point;
    });
    return nearest;
  }

  /** Return the points inside a polygon. @param {[number, number][]} polygon in CSS pixels */
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

/**
 * Return the best painter that the browser has; `?renderer=2d` in the address asks for the other.
 * @param {HTMLCanvasElement} canvas
 */
function painterFor(canvas) {
  if (new URL(location.href).searchParams.get("renderer") === "2d") return new FlatPainter(canvas);
  try {
    return new GlPainter(canvas);
  } catch {
    return new FlatPainter(canvas);
  }
}

/**
 * Whether a place is inside a polygon: a ray from it crosses the outline an odd number of times.
 * @param {[number, number][]} corners
 * @param {number} x
 * @param {number} y
 */
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

/**
 * Return the points of a space sorted into cells, to find those near a place.
 * @param {import("./space.js").Space} space
 */
function makeGrid(space) {
  const { n, xy } = space;
  const [x0, y0, x1, y1] = space.header.bounds;
  const side = clamp(Math.round(Math.sqrt(n / CELL_POINTS)), 1, MAX_CELLS); // cells a side
  const cellAlong = (/** @type {number} */ share) => clamp(Math.floor(share * side), 0, side - 1);
  const columnOf = (/** @type {number} */ x) => cellAlong((x - x0) / (x1 - x0 || 1));
  const rowOf = (/** @type {number} */ y) => cellAlong((y - y0) / (y1 - y0 || 1));
  // A counting sort: the points of cell c are those of `order` from starts[c] to starts[c + 1].
  const starts = new Uint32Array(side * side + 1);
  const cellByPoint = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) {
    const cell = rowOf(xy[2 * i + 1]) * side + columnOf(xy[2 * i]);
    cellByPoint[i] = cell;
    starts[cell + 1] += 1;
  }
  for (let cell = 0; cell < side * side; cell += 1) starts[cell + 1] += starts[cell];
  const nextPlaces = starts.slice();
  const order = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) {
    order[nextPlaces[cellByPoint[i]]] = i;
    nextPlaces[cellByPoint[i]] += 1;
  }
  return {
    space,
    /**
     * Visit the points of all cells that a square around a place touches.
     * @param {number} x in the map's coordinates
     * @param {number} y
     * @param {number} radius half a side of the square
     * @param {(point: number) => void} visit
     */
    visitNear(x, y, radius, visit) {
      for (let row = rowOf(y - radius); row <= rowOf(y + radius); row += 1) {
        const start = starts[row * side + columnOf(x - radius)];
        const end = starts[row * side + columnOf(x + radius) + 1];
        for (let k = start; k < end; k += 1) visit(order[k]);
      }
    },
  };
}
