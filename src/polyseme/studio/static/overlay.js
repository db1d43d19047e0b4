// @ts-check
/**
 * What lies over the dots: islands of senses, tag sets as stars, a lasso, where something lands.
 *
 * In: shapes in the map's own coordinates. Out: strokes on a canvas of its own.
 */

/** @typedef {{x: number, y: number}} Place */
/**
 * A tag set: lines from its middle to its dots. Colours are names of the style sheet's tokens.
 * @typedef {{colour: string, middle: Place | null, ends: Place[]}} Star
 */
/**
 * An ellipse round the points of a sense; x and y are its middle.
 * @typedef {object} IslandShape
 * @property {number} a half of the longer axis, in the map's coordinates
 * @property {number} b half of the shorter one
 * @property {number} turn of the longer axis, in radians against the clock
 * @property {string} colour name of a token
 * @property {number} sense number of the sense, from 0
 * @property {string} text
 */
/** @typedef {Place & IslandShape} Island */
/** @typedef {import("./points.js").Points} Points */

export class Overlay {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.flat = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Island[]} */
    this.islands = [];
    /** @type {Star[]} */
    this.stars = [];
    /** Corners of what was drawn around dots. @type {[number, number][]} */
    this.lasso = [];
    /** The dot that a tip is about. @type {Place | null} */
    this.dot = null;
    /** Where something lands. @type {Place | null} */
    this.ghost = null;
    /** Whether the middle of the map is marked, which Enter opens. */
    this.cross = false;
  }

  /** Draw all shapes anew. @param {Points} points the camera */
  draw(points) {
    const { flat } = this;
    this.resize(points);
    flat.setTransform(points.ratio, 0, 0, points.ratio, 0, 0);
    flat.clearRect(0, 0, points.width, points.height);
    for (const island of this.islands) this.drawIsland(points, island);
    for (const star of this.stars) this.drawStar(points, star);
    flat.globalAlpha = 1;
    if (this.lasso.length > 1) this.drawLasso(points);
    if (this.dot) this.ring(points.toScreen(this.dot.x, this.dot.y), 7, "--ink", 1.75);
    if (this.ghost) this.drawGhost(points.toScreen(this.ghost.x, this.ghost.y));
    if (this.cross) this.ring([points.width / 2, points.height / 2], 10, "--ink-2", 1.25);
  }

  /** Take the size of the canvas of points. @param {Points} points */
  resize(points) {
    const { width, height } = points.canvas;
    if (this.canvas.width === width && this.canvas.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
  }

  /** Return a colour of the style sheet. @param {string} name */
  colour(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name).trim();
  }

  /**
   * Draw an ellipse around the dots of a sense.
   * @param {Points} points
   * @param {Island} island
   */
  drawIsland(points, { x, y, a, b, turn, colour }) {
    const { flat } = this;
    const [left, top] = points.toScreen(x, y);
    const margin = 6; // CSS pixels around the dots
    flat.beginPath();
    flat.ellipse(
      left,
      top,
      a * points.scale + margin,
      b * points.scale + margin,
      -turn,
      0,
      2 * Math.PI,
    );
    this.fillAndStroke(colour, 0.07, 0.5);
  }

  /**
   * Draw lines from the middle of a tag set to its dots.
   * @param {Points} points
   * @param {Star} star
   */
  drawStar(points, { colour, middle, ends }) {
    if (!middle) return;
    const { flat } = this;
    const start = points.toScreen(middle.x, middle.y);
    flat.beginPath();
    for (const end of ends) {
      flat.moveTo(...start);
      flat.lineTo(...points.toScreen(end.x, end.y));
    }
    flat.strokeStyle = this.colour(colour);
    flat.globalAlpha = colour === "--accent" ? 0.7 : 0.3;
    flat.lineWidth = 1.25;
    flat.stroke();
  }

  /** @param {Points} points */
  drawLasso(points) {
    const { flat } = this;
    flat.beginPath();
    for (const [x, y] of this.lasso) flat.lineTo(...points.toScreen(x, y));
    flat.closePath();
    flat.setLineDash([5, 4]);
    this.fillAndStroke("--accent", 0.06, 1);
    flat.setLineDash([]);
    flat.globalAlpha = 1;
  }

  /** @param {[number, number]} position */
  drawGhost(position) {
    const { flat } = this;
    this.ring(position, 15, "--accent", 1.5, 0.5);
    this.ring(position, 8, "--accent", 2.5);
    flat.beginPath();
    flat.arc(...position, 3.5, 0, 2 * Math.PI);
    flat.fillStyle = this.colour("--accent");
    flat.fill();
  }

  /**
   * Fill the current path and draw its outline.
   * @param {string} name of the colour
   * @param {number} fillAlpha opacity, from 0 to 1
   * @param {number} strokeAlpha
   */
  fillAndStroke(name, fillAlpha, strokeAlpha) {
    const { flat } = this;
    const colour = this.colour(name);
    flat.fillStyle = colour;
    flat.strokeStyle = colour;
    flat.lineWidth = 1.25;
    flat.globalAlpha = fillAlpha;
    flat.fill();
    flat.globalAlpha = strokeAlpha;
    flat.stroke();
  }

  /**
   * Draw a ring; lengths are CSS pixels.
   * @param {[number, number]} position on the canvas
   * @param {number} radius
   * @param {string} name of the colour
   * @param {number} width of the line
   * @param {number} [alpha] opacity
   */
  ring(position, radius, name, width, alpha = 1) {
    const { flat } = this;
    flat.globalAlpha = alpha;
    flat.beginPath();
    flat.arc(...position, radius, 0, 2 * Math.PI);
    flat.strokeStyle = this.colour(name);
    flat.lineWidth = width;
    flat.stroke();
    flat.globalAlpha = 1;
  }
}
