// @ts-check
/**
 * What lies over the dots: islands of senses, tag sets as stars, a lasso, where something lands.
 *
 * In: shapes in the map's own coordinates. Out: strokes on a canvas of its own.
 */

/** @typedef {{x: number, y: number}} Place */

export class Overlay {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    /** @type {any[]} */
    this.islands = [];
    /** @type {{colour: string, middle: Place | null, ends: Place[]}[]} */
    this.stars = [];
    /** @type {[number, number][]} */
    this.lasso = [];
    /** @type {Place | null} */
    this.dot = null;
    /** @type {Place | null} */
    this.ghost = null;
    this.cross = false;
  }

  /** @param {import("./points.js").Points} points */
  draw(points) {
    const { canvas } = this;
    const flat = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    if (canvas.width !== points.canvas.width || canvas.height !== points.canvas.height) {
      canvas.width = points.canvas.width;
      canvas.height = points.canvas.height;
    }
    flat.setTransform(points.ratio, 0, 0, points.ratio, 0, 0);
    flat.clearRect(0, 0, points.width, points.height);
    const style = getComputedStyle(canvas);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    for (const island of this.islands) {
      const [x, y] = points.toScreen(island.x, island.y);
      flat.beginPath();
      flat.ellipse(
        x,
        y,
        island.a * points.scale + 6,
        island.b * points.scale + 6,
        -island.turn,
        0,
        2 * Math.PI,
      );
      flat.fillStyle = flat.strokeStyle = colour(island.colour);
      flat.globalAlpha = 0.07;
      flat.fill();
      flat.globalAlpha = 0.5;
      flat.lineWidth = 1.25;
      flat.stroke();
    }
    flat.lineWidth = 1.25;
    for (const { colour: name, middle, ends } of this.stars) {
      if (!middle) continue;
      flat.strokeStyle = colour(name);
      flat.globalAlpha = name === "--accent" ? 0.7 : 0.3;
      flat.beginPath();
      for (const end of ends) {
        flat.moveTo(...points.toScreen(middle.x, middle.y));
        flat.lineTo(...points.toScreen(end.x, end.y));
      }
      flat.stroke();
    }
    flat.globalAlpha = 1;
    if (this.lasso.length > 1) {
      flat.beginPath();
      for (const [x, y] of this.lasso) flat.lineTo(...points.toScreen(x, y));
      flat.closePath();
      flat.strokeStyle = flat.fillStyle = colour("--accent");
      flat.lineWidth = 1.5;
      flat.setLineDash([5, 4]);
      flat.stroke();
      flat.setLineDash([]);
      flat.globalAlpha = 0.06;
      flat.fill();
      flat.globalAlpha = 1;
    }
    if (this.dot) ring(flat, points.toScreen(this.dot.x, this.dot.y), 7, colour("--ink"), 1.75);
    if (this.ghost) {
      const position = points.toScreen(this.ghost.x, this.ghost.y);
      ring(flat, position, 15, colour("--accent"), 1.5, 0.5);
      ring(flat, position, 8, colour("--accent"), 2.5);
      flat.beginPath();
      flat.arc(position[0], position[1], 3.5, 0, 2 * Math.PI);
      flat.fillStyle = colour("--accent");
      flat.fill();
    }
    if (this.cross) ring(flat, [points.width / 2, points.height / 2], 10, colour("--ink-2"), 1.25);
  }
}

/**
 * @param {CanvasRenderingContext2D} flat
 * @param {[number, number]} position
 * @param {number} radius
 * @param {string} colour
 * @param {number} width
 * @param {number} [alpha]
 */
function ring(flat, position, radius, colour, width, alpha = 1) {
  flat.globalAlpha = alpha;
  flat.beginPath();
  flat.arc(position[0], position[1], radius, 0, 2 * Math.PI);
  flat.strokeStyle = colour;
  flat.lineWidth = width;
  flat.stroke();
  flat.globalAlpha = 1;
}
