// @ts-check
/**
 * A small map that shows where something lands among the known tag sets.
 *
 * In: a place, and the known tag sets nearest to it. Out: an element, with a way to the whole map.
 */

import { clear, h } from "./dom.js";
import { loadSpace } from "./space.js";
import { Points } from "./points.js";
import { listen } from "./gestures.js";
import { Overlay } from "./overlay.js";
import { anchorsOf, Captions } from "./captions.js";
import { distanceText, hashOf, setLink } from "./cards.js";
import { token } from "./colours.js";

/** @typedef {import("./api.js").Neighbour} Neighbour */
/** @typedef {import("./space.js").Space} Space */
/** @typedef {{x: number, y: number}} Place */

const LISTED = 4; // tag sets below the map
const MAX_POINTS = 60_000; // that the small map draws
const MAX_CAPTIONS = 9;
const MAX_LEVEL = 1; // of the captions that the small map has
const LIT_SIZE = 0.6; // of lit dots, as a multiple of those of the large map
const ZOOM = 1.7; // of the small map
const TOWARDS = 0.65; // how far the picture moves from the middle of the map to the place

export class Landing {
  /** @param {any} context */
  constructor(context) {
    this.context = context;
    /** @type {Points | null} */
    this.points = null;
    /** @type {import("./captions.js").Anchor[]} */
    this.anchors = [];
    this.isDisposed = false;
    this.canvas = h("canvas.map-canvas", { role: "img", aria_label: "Map of the known tag sets" });
    const flat = h("canvas.map-overlay", { aria_hidden: "true" });
    const layer = h("div.captions", { aria_hidden: "true" });
    this.overlay = new Overlay(flat);
    this.captions = new Captions(layer, MAX_CAPTIONS);
    this.nearest = h("ul.near");
    this.mapButton = h("button.quiet", "Open on the map");
    this.element = h("section.landing", { aria_label: "Where it lands", hidden: true },
      h("header.row", h("h2", "Where it lands"), this.mapButton),
      h("div.landing-stage", this.canvas, flat, layer),
      this.nearest,
    );
  }

  dispose() {
    this.isDisposed = true;
    this.points?.dispose();
  }

  /**
   * Show a place, and the tag sets near it.
   * @param {Place | null} place nothing hides the map
   * @param {Neighbour[]} neighbours the nearest first
   * @param {string} text what lands there
   */
  async show(place, neighbours, text) {
    this.element.hidden = !place;
    if (!place) return;
    this.overlay.ghost = place;
    this.canvas.setAttribute("aria-label", nameOf(neighbours));
    this.mapButton.onclick = () => this.openMap(place, text);
    clear(this.nearest, neighbours.slice(0, LISTED).map(neighbourRow));
    try {
      const space = await loadSpace(this.context);
      if (this.isDisposed) return;
      this.points ??= this.makePoints(space);
      this.light(space, place, neighbours);
    } catch {
      this.element.hidden = true;
    }
  }

  /**
   * @param {Place} place
   * @param {string} text
   */
  openMap(place, text) {
    this.context.state.ghost = { ...place, text };
    this.context.navigate("#/map/place");
  }

  /** Make the small map, with the largest words only. @param {Space} space */
  makePoints(space) {
    const openLabel = (/** @type {string} */ label) =>
      this.context.navigate(hashOf("map/label", label));
    const points = new Points(this.canvas, {
      maxPoints: MAX_POINTS,
      dot: LIT_SIZE,
      onview: () => this.drawOver(points),
    });
    this.anchors = anchorsOf(space, openLabel)
      .filter((anchor) => anchor.shown <= MAX_LEVEL)
      .map((anchor) => ({ ...anchor, level: 3 })); // all are written small
    listen(points, {});
    points.load(space);
    return points;
  }

  /** @param {Points} points */
  drawOver(points) {
    this.captions.place(points, this.anchors);
    this.overlay.draw(points);
  }

  /**
   * Light up the nearest tag sets, and bring the place into view.
   * @param {Space} space
   * @param {Place} place
   * @param {Neighbour[]} neighbours
   */
  light(space, place, neighbours) {
    const { points } = this;
    if (!points) return;
    const [x0, y0, x1, y1] = space.header.bounds;
    const x = TOWARDS * place.x + (1 - TOWARDS) * ((x0 + x1) / 2);
    const y = TOWARDS * place.y + (1 - TOWARDS) * ((y0 + y1) / 2);
    const near = neighbours.flatMap(({ document }) => Array.from(space.ofDocument(document)));
    points.fly(x, y, points.fitScale * ZOOM);
    points.light(near.length ? [{ points: near, colour: token("--sense-2") }] : []);
  }
}

/** @param {Neighbour[]} neighbours */
function nameOf(neighbours) {
  if (!neighbours.length) return "Where it lands among the known tag sets";
  return `It lands beside the tag set ${neighbours[0].labels.join(", ")}`;
}

/** @param {Neighbour} neighbour */
const neighbourRow = (neighbour) => h("li", setLink(neighbour), distanceText(neighbour.distance));
