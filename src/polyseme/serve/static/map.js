// @ts-check
/**
 * The Map view: every known concept a dot.
 *
 * In: `#/map`, `#/map/label/NAME`, `#/map/document/INDEX`, `#/map/place`. Out: the map, and beside
 * it a panel with what is chosen; all that the map shows can be reached in the panel by keyboard.
 */

import { clear, h } from "./dom.js";
import { isAbort } from "./api.js";
import { empty, failed, iconButton, loading, plural } from "./parts.js";
import { searchBox } from "./labelbox.js";
import { centre, island, loadSpace } from "./space.js";
import { Points } from "./points.js";
import { listen } from "./gestures.js";
import { anchorsOf, Captions } from "./captions.js";
import { Overlay } from "./overlay.js";
import { SENSES, token } from "./colours.js";
import { documentCard, ghostCard, labelCard, overview, selectionCard, hashOf } from "./cards.js";

const MOST_ASKED = 20000; // tag sets of a selection that are sent
const HITS = 12; // tag sets that the panel lists

/** @param {HTMLElement} root @param {import("./app.js").Context} context */
export async function mount(root, context) {
  root.append(loading("Loading the map…"));
  const space = await loadSpace(context);
  if (!space.n) {
    clear(root,
      empty(
        "No known tag sets",
        "The map shows the tag sets that the model knows, and it knows none. Add some in the vocabulary.",
        h("a.button", { href: "#/vocabulary" }, "Open the vocabulary"),
      ),
    );
    return {};
  }
  const view = new MapView(root, context, space);
  await view.update(context.route);
  return view;
}

class MapView {
  /**
   * @param {HTMLElement} root
   * @param {import("./app.js").Context} context
   * @param {import("./space.js").Space} space
   */
  constructor(root, context, space) {
    this.context = context;
    this.space = space;
    /** @type {any[]} */
    this.islands = [];
    /** @type {AbortController} */
    this.asked = new AbortController();
    this.hook = /** @type {any} */ (window).__studio.map;
    /** @type {import("./captions.js").Anchor[]} */
    this.names = [];
    this.lassoing = false;
    this.selected = false;
    this.tipped = -1;
    const phone = matchMedia("(max-width: 48rem)").matches;
    const canvas = h("canvas.map-canvas", {
      tabindex: "0",
      role: "application",
      aria_roledescription: "map",
      aria_label: `Map of ${plural(space.n, "dot")}. Arrow keys move, plus and minus zoom, Enter opens the tag set in the middle.`,
    });
    this.layer = h("div.captions", { aria_hidden: "true" });
    this.tip = h("div.tip", { hidden: true, aria_hidden: "true" });
    this.panel = h("aside.panel", { aria_label: "What is chosen", tabindex: "-1" });
    this.status = h("p.sr", { role: "status" });
    this.search = searchBox({
      api: context.api,
      name: "Find a label",
      placeholder: "Find a label",
      choose: (label) => context.navigate(hashOf("map/label", label)),
    });
    this.lassoButton = iconButton("lasso", "Lasso: draw around dots", {
      aria_pressed: "false",
      onclick: () => this.setLasso(!this.lassoing),
    });
    this.captions = new Captions(this.layer, phone ? 22 : 48);
    this.overlay = new Overlay(h("canvas.map-overlay", { aria_hidden: "true" }));
    this.points = new Points(canvas, {
      onview: () => this.onView(),
      inset: phone ? { top: 56, bottom: 56 } : { top: 32, right: 24 },
    });
    this.onKey = (/** @type {any} */ event) => this.key(event);
    this.anchors = anchorsOf(space, (label) => context.navigate(hashOf("map/label", label)));
    this.compose(root);
    this.listen();
    this.points.load(space);
    this.report();
    context.shortcuts([
      { keys: "← → ↑ ↓", does: "move the map (with Shift: farther)" },
      { keys: "+ - 0", does: "closer, farther, all" },
      { keys: "Enter", does: "the tag set in the middle of the map" },
      { keys: "l", does: "lasso on or off (or drag with Shift)" },
      { keys: "v", does: "what the tag sets in view share" },
    ]);
  }

  /** @param {HTMLElement} root */
  compose(root) {
    const tools = h("div.map-tools", { role: "group", aria_label: "Map" },
      iconButton("plus", "Zoom in", { onclick: () => this.points.zoom(1.6) }),
      iconButton("minus", "Zoom out", { onclick: () => this.points.zoom(1 / 1.6) }),
      iconButton("fit", "Show all", { onclick: () => this.points.fit(this.space.header.bounds) }),
      this.lassoButton,
      iconButton("list", "What the tag sets in view share", { onclick: () => this.selectView() }),
    );
    const stage = h("div.map-stage",
      this.points.canvas,
      this.overlay.canvas,
      this.layer,
      this.tip,
      h("div.map-search", this.search.element),
      tools,
    );
    clear(root, h("div.map", stage, this.panel, this.status));
  }

  listen() {
    const { points, overlay } = this;
    listen(points, {
      tap: (x, y) => this.open(points.pick(x, y, 18)),
      hover: (x, y) => this.hover(x, y),
      lasso: (polygon, isDone) => this.lasso(polygon, isDone),
      lassoing: () => this.lassoing,
      enter: () =>
        this.open(
          points.pick(
            points.width / 2,
            points.height / 2,
            Math.hypot(points.width, points.height) / 3,
          ),
        ),
      escape: () => this.back(),
    });
    const cross = (/** @type {boolean} */ isShown) => {
      overlay.cross = isShown;
      overlay.draw(points);
    };
    points.canvas.addEventListener("keydown", (event) => event.key !== "Tab" && cross(true));
    for (const end of ["blur", "pointerdown"])
      points.canvas.addEventListener(end, () => cross(false));
    window.addEventListener("keydown", this.onKey);
  }

  /** @param {any} event */
  key(event) {
    if (
      event.defaultPrevented ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      event.target.closest("input, textarea, select, dialog")
    )
      return;
    if (event.key === "l") this.setLasso(!this.lassoing);
    else if (event.key === "v") this.selectView();
    else if (event.key === "Escape") this.back();
  }

  back() {
    if (this.lassoing) this.setLasso(false);
    else if (this.context.route.args.length || this.points.groups.length)
      this.context.navigate("#/map");
  }

  unmount() {
    this.asked.abort();
    this.points.dispose();
    window.removeEventListener("keydown", this.onKey);
  }

  /** @param {import("./app.js").Route} route */
  async update(route) {
    const [kind, value] = route.args;
    this.asked.abort();
    this.asked = new AbortController();
    this.hideTip();
    this.overlay.lasso = [];
    if (kind === "label" && value) return this.showLabel(value);
    if (kind === "document" && value) return this.showDocument(Number(value));
    if (kind === "place" && this.context.state.ghost)
      return this.showGhost(this.context.state.ghost);
    this.search.set("");
    this.light([], []);
    this.say(overview(this.context.model, this.space));
  }

  /**
   * Ask the service, and show the answer unless something else was chosen meanwhile.
   * @param {string} text
   * @param {(signal: AbortSignal) => Promise<any>} question
   * @param {(answer: any) => void} show
   */
  async ask(text, question, show) {
    const { signal } = this.asked;
    clear(this.panel, loading(text));
    try {
      const answer = await question(signal);
      if (!signal.aborted) show(answer);
    } catch (error) {
      if (!isAbort(error) && !signal.aborted)
        clear(this.panel,
          failed(error, () => this.update(this.context.route)),
        );
    }
  }

  /** @param {any} body @param {string} [summary] what a screen reader says of it */
  say(body, summary = "") {
    this.status.textContent = summary;
    const close =
      this.context.route.args.length || this.selected
        ? iconButton("close", "Close", {
            class: "icon-button panel-close",
            onclick: () => this.context.navigate("#/map"),
          })
        : null;
    clear(this.panel, close, body);
    this.panel.scrollTop = 0;
    this.selected = false;
  }

  /** @param {string} label */
  async showLabel(label) {
    this.search.set(label);
    const ownPoints = this.space.ofLabel(this.space.indexOf.get(label) ?? -1);
    this.light([{ points: ownPoints, colour: token(SENSES[0]) }], []);
    const { api } = this.context;
    await this.ask(
      `Looking up ${label}…`,
      (signal) => api.get(api.model("labels", label), { signal }),
      (card) => {
        const groups = this.senses(card, ownPoints);
        this.light(
          groups.map((points, i) => ({ points, colour: token(SENSES[i % SENSES.length]) })),
          groups.map((points, i) => this.islandOf(card, points, i)).filter(Boolean),
        );
        this.say(
          labelCard(card, { sense: (i) => this.goTo(groups[i]) }, this.hits(ownPoints)),
          `${card.label}, ${card.kind}: ${plural(card.count, "tag set")}, ${plural(card.senses.length, "sense")}`,
        );
        this.goTo(ownPoints);
      },
    );
  }

  /**
   * Points of a label by sense.
   * @param {any} card
   * @param {Uint32Array} ownPoints
   * @returns {number[][]}
   */
  senses(card, ownPoints) {
    const senseOf = new Uint16Array(this.space.header.n_documents);
    card.senses.forEach((/** @type {any} */ sense, /** @type {number} */ i) =>
      sense.documents.forEach((/** @type {number} */ document) => (senseOf[document] = i + 1)),
    );
    /** @type {number[][]} */
    const groups = Array.from({ length: Math.max(1, card.senses.length) }, () => []);
    for (const i of ownPoints) groups[Math.max(0, senseOf[this.space.document[i]] - 1)].push(i);
    return groups;
  }

  /** @param {any} card @param {number[]} points @param {number} i */
  islandOf(card, points, i) {
    if (points.length < 3) return null;
    const several = card.senses.length > 1;
    const caption = (card.senses[i]?.words || []).slice(0, 3).join(", ");
    return {
      ...island(this.space.xy, points),
      colour: SENSES[i % SENSES.length],
      sense: i,
      text: several ? `${i + 1}  ${caption}` : caption || card.label,
    };
  }

  /** @param {number} index */
  async showDocument(index) {
    this.search.set("");
    const ownPoints = this.space.ofDocument(index);
    const { api } = this.context;
    this.light([{ points: ownPoints, colour: token("--accent") }], []);
    await this.ask(
      "Looking up the tag set…",
      (signal) => api.get(api.model("documents", index), { signal }),
      (card) => {
        const nearPoints = card.neighbours.flatMap((/** @type {any} */ neighbour) =>
          Array.from(this.space.ofDocument(neighbour.document)),
        );
        this.light(
          [
            { points: nearPoints, colour: token("--sense-2") },
            { points: ownPoints, colour: token("--accent") },
          ],
          [],
        );
        this.overlay.stars = [
          ...card.neighbours.map((/** @type {any} */ neighbour) =>
            this.star(this.space.ofDocument(neighbour.document), "--sense-2"),
          ),
          this.star(ownPoints, "--accent"),
        ];
        this.names = Array.from(ownPoints, (i) => ({
          key: `d${i}`,
          text: this.space.labels[this.space.label[i]],
          x: this.space.xy[2 * i],
          y: this.space.xy[2 * i + 1],
          level: 2,
          className: "caption-own",
          above: 15,
        }));
        this.say(documentCard(card), `Tag set: ${card.labels.join(", ")}`);
        this.goTo([...ownPoints, ...ownPoints, ...nearPoints], 0.15);
      },
    );
  }

  /**
   * A tag set as a star: its middle, and where its tags lie.
   * @param {Uint32Array} points
   * @param {string} colour
   */
  star(points, colour) {
    return {
      colour,
      middle: centre(this.space.xy, points),
      ends: Array.from(points, (i) => ({ x: this.space.xy[2 * i], y: this.space.xy[2 * i + 1] })),
    };
  }

  /** @param {any} ghost */
  showGhost(ghost) {
    this.light([], []);
    this.overlay.ghost = ghost;
    this.say(ghostCard(ghost));
    this.points.fly(ghost.x, ghost.y, this.points.fitScale * 4);
  }

  /** @param {any[]} groups @param {any[]} islands */
  light(groups, islands) {
    this.islands = islands;
    this.names = [];
    this.overlay.islands = islands;
    this.overlay.stars = [];
    this.overlay.ghost = null;
    this.points.light(groups.filter((group) => group.points.length));
    this.report();
  }

  /**
   * Show these points, but for a share at each edge.
   * @param {ArrayLike<number>} points
   * @param {number} [edgeShare]
   */
  goTo(points, edgeShare = 0.02) {
    if (!points?.length) return;
    const indices = Array.from(points);
    const xs = indices.map((i) => this.space.xy[2 * i]).sort((a, b) => a - b);
    const ys = indices.map((i) => this.space.xy[2 * i + 1]).sort((a, b) => a - b);
    const part = (/** @type {number[]} */ list, /** @type {number} */ q) =>
      list[Math.round(q * (list.length - 1))];
    const [x0, x1, y0, y1] = [
      part(xs, edgeShare),
      part(xs, 1 - edgeShare),
      part(ys, edgeShare),
      part(ys, 1 - edgeShare),
    ];
    const pad = 0.12 * Math.max(x1 - x0, y1 - y0) + 12 / (this.points.fitScale * 8);
    this.points.fit([x0 - pad, y0 - pad, x1 + pad, y1 + pad], 500);
  }

  /** @param {ArrayLike<number>} points @returns {{document: number, labels: string[]}[]} */
  hits(points) {
    const seen = new Set();
    for (let k = 0; k < points.length && seen.size < HITS; k += 1)
      seen.add(this.space.document[points[k]]);
    return [...seen].map((document) => ({ document, labels: this.space.tags(document) }));
  }

  /** @param {number} point */
  open(point) {
    if (point >= 0) this.context.navigate(`#/map/document/${this.space.document[point]}`);
  }

  /** @param {number} x @param {number} y */
  hover(x, y) {
    const point = Number.isNaN(x) || this.lassoing ? -1 : this.points.pick(x, y, 8);
    this.points.canvas.classList.toggle("on-dot", point >= 0);
    if (point < 0) return this.hideTip();
    const document = this.space.document[point];
    const label = this.space.labels[this.space.label[point]];
    if (this.tipped !== point) {
      this.tipped = point;
      clear(this.tip,
        h("strong", label),
        h("span",
          this.space
            .tags(document)
            .filter((tag) => tag !== label)
            .join(", "),
        ),
      );
    }
    this.tip.hidden = false;
    const [px, py] = this.points.toScreen(this.space.xy[2 * point], this.space.xy[2 * point + 1]);
    this.overlay.dot = { x: this.space.xy[2 * point], y: this.space.xy[2 * point + 1] };
    this.tip.classList.toggle("tip-left", px > this.points.width * 0.65);
    this.tip.style.setProperty("transform", `translate(${px.toFixed(0)}px, ${py.toFixed(0)}px)`);
    this.overlay.draw(this.points);
  }

  hideTip() {
    if (this.tip.hidden) return;
    this.tip.hidden = true;
    this.tipped = -1;
    this.overlay.dot = null;
    this.overlay.draw(this.points);
  }

  /** @param {boolean} isOn */
  setLasso(isOn) {
    this.lassoing = isOn;
    this.lassoButton.setAttribute("aria-pressed", String(isOn));
    this.points.canvas.classList.toggle("lassoing", isOn);
    if (isOn) this.context.toast("Draw around dots to see the tags they share.", { seconds: 3 });
  }

  /** @param {[number, number][]} polygon @param {boolean} isDone */
  lasso(polygon, isDone) {
    this.overlay.lasso = polygon.map(([x, y]) => this.points.toMap(x, y));
    this.overlay.draw(this.points);
    if (isDone) this.select(this.points.within(polygon));
  }

  selectView() {
    const { width, height } = this.points;
    this.select(
      this.points.within([
        [0, 0],
        [width, 0],
        [width, height],
        [0, height],
      ]),
    );
  }

  /** @param {number[]} points */
  async select(points) {
    this.setLasso(false);
    this.hideTip();
    if (!points.length) return this.context.toast("There is no dot inside.");
    const outline = this.overlay.lasso;
    if (this.context.route.args.length) history.replaceState(null, "", "#/map");
    this.context.route.args = [];
    this.search.set("");
    this.asked.abort();
    this.asked = new AbortController();
    const documents = [...new Set(points.map((i) => this.space.document[i]))];
    const step = Math.max(1, documents.length / MOST_ASKED);
    const sent = Array.from(
      { length: Math.min(documents.length, MOST_ASKED) },
      (_, i) => documents[Math.floor(i * step)],
    );
    this.light([{ points, colour: token("--accent") }], []);
    this.overlay.lasso = outline;
    const { api } = this.context;
    await this.ask(
      "Counting the tags they share…",
      (signal) => api.post(api.model("documents/shared"), { documents: sent }, { signal }),
      (shared) => {
        this.selected = true;
        this.say(
          selectionCard(shared, this.hits(points), documents.length),
          `${plural(documents.length, "tag set")} selected; they share ${
            shared.labels
              .slice(0, 3)
              .map((/** @type {any} */ label) => label.label)
              .join(", ") || "no tag"
          }`,
        );
      },
    );
  }

  onView() {
    const { points } = this;
    const level = Math.log2(Math.max(0.7, points.scale / points.fitScale)) + 0.8;
    const named = this.islands.map((island) => {
      const rise =
        Math.hypot(island.a * Math.sin(island.turn), island.b * Math.cos(island.turn)) *
        points.scale;
      return {
        key: `island ${island.sense} ${island.text}`,
        text: island.text,
        x: island.x,
        y: island.y,
        level: 2,
        above: rise + 18,
        keep: true,
        className: `caption-island sense-${(island.sense % SENSES.length) + 1}`,
      };
    });
    const busy = this.points.groups.length > 0;
    const anchors = busy ? [] : this.anchors.filter((anchor) => anchor.shown <= level);
    this.captions.place(points, [...named, ...(this.names || []), ...anchors]);
    this.overlay.draw(points);
    if (!this.tip.hidden && points.moving) this.hideTip();
    this.report();
  }

  report() {
    Object.assign(this.hook, {
      n: this.space.n,
      scale: this.points.scale / this.points.fitScale,
      highlighted: this.points.groups.reduce((sum, group) => sum + group.points.length, 0),
      islands: this.islands.length,
      captions: this.captions.shown.size,
      renderer: this.points.painter.kind,
      frames: this.points.frames,
      full: this.points.full,
      budget: Math.round(this.points.budget),
      points: this.points,
    });
  }
}
