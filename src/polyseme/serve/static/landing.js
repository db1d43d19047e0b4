// @ts-check
/**
 * A small map that shows where something lands among the known tag sets.
 *
 * In: a place, and the known tag sets nearest to it. Out: an element; the whole map is one step away.
 */

import { clear, h } from "./dom.js";
import { loadSpace } from "./space.js";
import { Points } from "./points.js";
import { listen } from "./gestures.js";
import { Overlay } from "./overlay.js";
import { anchorsOf, Captions } from "./captions.js";
import { setLink, hashOf } from "./cards.js";
import { token } from "./colours.js";

/** @param {any} context */
export function landing(context) {
  const canvas = h("canvas.map-canvas", { role: "img", aria_label: "Map of the known tag sets" });
  const flat = h("canvas.map-overlay", { aria_hidden: "true" });
  const layer = h("div.captions", { aria_hidden: "true" });
  const nearest = h("ul.near");
  const mapButton = h("button.quiet", "Open on the map");
  const element = h("section.landing", { aria_label: "Where it lands", hidden: true },
    h("header.row", h("h2", "Where it lands"), mapButton),
    h("div.landing-stage", canvas, flat, layer),
    nearest,
  );
  const overlay = new Overlay(flat);
  const captions = new Captions(layer, 9);
  /** @type {Points | null} */
  let points = null;
  /** @type {any[]} */
  let anchors = [];
  let ended = false;

  const begin = async () => {
    if (points || ended) return;
    const newPoints = new Points(canvas, {
      most: 60000,
      dot: 0.6,
      onview: () => (captions.place(newPoints, anchors), overlay.draw(newPoints)),
    });
    points = newPoints;
    listen(points, {});
    const space = await loadSpace(context);
    if (ended) return;
    anchors = anchorsOf(space, (label) => context.navigate(hashOf("map/label", label)))
      .filter((anchor) => anchor.shown < 2)
      .map((anchor) => ({ ...anchor, level: 3 }));
    points.load(space);
  };

  return {
    element,
    /**
     * @param {{x: number, y: number} | null} place
     * @param {any[]} neighbours
     * @param {string} text
     */
    async show(place, neighbours, text) {
      element.hidden = !place;
      if (!place) return;
      overlay.ghost = place;
      canvas.setAttribute(
        "aria-label",
        neighbours.length
          ? `It lands beside the tag set ${neighbours[0].labels.join(", ")}`
          : "Where it lands among the known tag sets",
      );
      mapButton.onclick = () => {
        context.state.ghost = { ...place, text };
        context.navigate("#/map/place");
      };
      clear(nearest,
        neighbours
          .slice(0, 4)
          .map((neighbour) =>
            h("li",
              setLink(neighbour),
              h("span.muted", { title: "Distance in the concept space" },
                neighbour.distance.toFixed(2),
              ),
            ),
          ),
      );
      try {
        await begin();
        const space = await loadSpace(context);
        if (ended || !points) return;
        const [x0, y0, x1, y1] = space.header.bounds;
        points.fly(
          0.65 * place.x + 0.175 * (x0 + x1),
          0.65 * place.y + 0.175 * (y0 + y1),
          points.fitScale * 1.7,
        );
        points.light(
          neighbours.length
            ? [
                {
                  points: neighbours.flatMap((neighbour) =>
                    Array.from(space.ofDocument(neighbour.document)),
                  ),
                  colour: token("--sense-2"),
                },
              ]
            : [],
        );
      } catch {
        element.hidden = true;
      }
    },
    dispose() {
      ended = true;
      points?.dispose();
    },
  };
}
