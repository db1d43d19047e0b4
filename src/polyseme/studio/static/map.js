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
import { centreOf, islandOf, loadSpace, placeOf } from "./space.js";
import { Points } from "./points.js";
import { listen } from "./gestures.js";
import { anchorsOf, Captions } from "./captions.js";
import { Overlay } from "./overlay.js";
import { SENSES, token } from "./colours.js";
import { documentCard, ghostCard, hashOf, labelCard, overview, selectionCard } from "./cards.js";

/** @typedef {import("./api.js").LabelCard} LabelCard */
/** @typedef {import("./api.js").Neighbour} Neighbour */
/** @typedef {import("./api.js").TagSet} TagSet */
/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Route} Route */
/** @typedef {import("./captions.js").Anchor} Anchor */
/** @typedef {import("./overlay.js").Island} Island */
/** @typedef {import("./points.js").Group} Group */
/** @typedef {import("./space.js").Space} Space */

const MAX_SENT = 20_000; // tag sets of a selection that the service is asked about
const HITS = 12; // tag sets that the panel lists
const BUTTON_ZOOM = 1.6; // factor of the buttons + and -
const TAP_REACH = 18; // CSS pixels from a tap to the dot that it opens
const HOVER_REACH = 8;
const KEYS = [
  { keys: "← → ↑ ↓", does: "move the map (with Shift: farther)" },
  { keys: "+ - 0", does: "closer, farther, all" },
  { keys: "Enter", does: "the tag set in the middle of the map" },
  { keys: "l", does: "lasso on or off (or drag with Shift)" },
  { keys: "v", does: "what the tag sets in view share" },
];

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function mount(root, context) {
  root.append(loading("Loading the map…"));
  const space = await loadSpace(context);
  if (!space.n) {
    clear(root, noTagSets());
    return {};
  }
  const view = new MapView(root, context, space);
  await view.update(context.route);
  return view;
}

function noTagSets() {
  const link = h("a.button", { href: "#/vocabulary" }, "Open the vocabulary");
  const text = "The map shows the tag sets that the model knows. Add some in the vocabulary.";
  return empty("No known tag sets", text, link);
}

/** Return the name of the colour of a sense. @param {number} sense from 0 */
const senseColour = (sense) => SENSES[sense % SENSES.length];

class MapView {
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   * @param {Space} space
   */
  constructor(root, context, space) {
    this.context = context;
    this.space = space;
    /** @type {Island[]} */
    this.islands = [];
    /** Captions of what is chosen. @type {Anchor[]} */
    this.names = [];
    this.control = new AbortController();
    this.hook = /** @type {any} */ (window).__studio.map;
    this.isLasso = false; // whether a plain drag draws a lasso
    this.isSelection = false; // whether the panel shows a selection
    this.hovered = -1; // the point that the tip is about
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.handleKey(event);

    const openLabel = (/** @type {string} */ label) => context.navigate(hashOf("map/label", label));
    const isPhone = matchMedia("(max-width: 48rem)").matches;
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
      choose: openLabel,
    });
    this.lassoButton = iconButton("lasso", "Lasso: draw around dots", {
      aria_pressed: "false",
      onclick: () => this.setLasso(!this.isLasso),
    });
    this.captions = new Captions(this.layer, isPhone ? 22 : 48);
    this.overlay = new Overlay(h("canvas.map-overlay", { aria_hidden: "true" }));
    this.points = new Points(canvas, {
      onview: () => this.drawOver(),
      inset: isPhone ? { top: 56, bottom: 56 } : { top: 32, right: 24 },
    });
    this.anchors = anchorsOf(space, openLabel);
    this.compose(root);
    this.listen();
    this.points.load(space);
    this.report();
    context.shortcuts(KEYS);
  }

  unmount() {
    this.control.abort();
    this.points.dispose();
    window.removeEventListener("keydown", this.onKey);
  }

  /** @param {HTMLElement} root */
  compose(root) {
    const { points, space } = this;
    const tools = h("div.map-tools", { role: "group", aria_label: "Map" },
      iconButton("plus", "Zoom in", { onclick: () => points.zoom(BUTTON_ZOOM) }),
      iconButton("minus", "Zoom out", { onclick: () => points.zoom(1 / BUTTON_ZOOM) }),
      iconButton("fit", "Show all", { onclick: () => points.fit(space.header.bounds) }),
      this.lassoButton,
      iconButton("list", "What the tag sets in view share", { onclick: () => this.selectView() }),
    );
    const stage = h("div.map-stage",
      points.canvas,
      this.overlay.canvas,
      this.layer,
      this.tip,
      h("div.map-search", this.search.element),
      tools,
    );
    clear(root, h("div.map", stage, this.panel, this.status));
  }

  /* ---- gestures and keys ---- */

  /** Take gestures on the map, and keys. */
  listen() {
    const { points } = this;
    const { canvas } = points;
    listen(points, {
      tap: (x, y) => this.open(points.pick(x, y, TAP_REACH)),
      hover: (x, y) => this.hover(x, y),
      lasso: (polygon, isDone) => this.drawLasso(polygon, isDone),
      isLasso: () => this.isLasso,
      enter: () => this.openMiddle(),
      escape: () => this.back(),
    });
    canvas.addEventListener("keydown", (event) => event.key !== "Tab" && this.setCross(true));
    canvas.addEventListener("blur", () => this.setCross(false));
    canvas.addEventListener("pointerdown", () => this.setCross(false));
    window.addEventListener("keydown", this.onKey);
  }

  /** Mark the middle of the map, which Enter opens. @param {boolean} isShown */
  setCross(isShown) {
    this.overlay.cross = isShown;
    this.overlay.draw(this.points);
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    if (event.defaultPrevented || hasModifier) return;
    if (target.closest("input, textarea, select, dialog")) return;
    if (event.key === "l") this.setLasso(!this.isLasso);
    else if (event.key === "v") this.selectView();
    else if (event.key === "Escape") this.back();
  }

  /** Step back: leave the lasso, or what is chosen. */
  back() {
    const isChosen = this.context.route.args.length || this.points.groups.length;
    if (this.isLasso) this.setLasso(false);
    else if (isChosen) this.context.navigate("#/map");
  }

  /** Open the tag set of a point. @param {number} point or -1 */
  open(point) {
    if (point >= 0) this.context.navigate(`#/map/document/${this.space.document[point]}`);
  }

  openMiddle() {
    const { points } = this;
    const { width, height } = points;
    this.open(points.pick(width / 2, height / 2, Math.hypot(width, height) / 3));
  }

  /* ---- what the address names ---- */

  /** Show what the address names. @param {Route} route */
  async update(route) {
    const [kind, value] = route.args;
    const { ghost } = this.context.state; // what the Ask view has asked to be shown
    this.restartControl();
    this.hideTip();
    this.overlay.lasso = [];
    if (kind === "label" && value) return this.showLabel(value);
    if (kind === "document" && value) return this.showDocument(Number(value));
    if (kind === "place" && ghost) return this.showGhost(ghost);
    this.search.set("");
    this.light([]);
    this.showCard(overview(this.context.model, this.space));
  }

  /** What was asked before is of no interest any more. */
  restartControl() {
    this.control.abort();
    this.control = new AbortController();
  }

  /**
   * Ask the service, and show the answer unless something else was chosen meanwhile.
   * @template T
   * @param {string} text while it is asked
   * @param {(signal: AbortSignal) => Promise<T>} request
   * @param {(answer: T) => void} show
   */
  async ask(text, request, show) {
    const { signal } = this.control;
    clear(this.panel, loading(text));
    try {
      const answer = await request(signal);
      if (!signal.aborted) show(answer);
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      clear(this.panel,
        failed(error, () => this.update(this.context.route)),
      );
    }
  }

  /**
   * Show a card in the panel, with a way back to the whole map.
   * @param {HTMLElement} card
   * @param {string} [summary] what a screen reader says of it
   */
  showCard(card, summary = "") {
    const isChosen = this.context.route.args.length > 0 || this.isSelection;
    const close = iconButton("close", "Close", {
      class: "panel-close",
      onclick: () => this.context.navigate("#/map"),
    });
    this.status.textContent = summary;
    clear(this.panel, isChosen && close, card);
    this.panel.scrollTop = 0;
    this.isSelection = false;
  }

  /** Show a label: at once its dots, then its card. @param {string} label */
  async showLabel(label) {
    const { api } = this.context;
    const points = this.space.ofLabel(this.space.indexOf.get(label) ?? -1);
    this.search.set(label);
    this.light([{ points, colour: token(senseColour(0)) }]);
    await this.ask(
      `Looking up ${label}…`,
      (signal) => api.get(api.model("labels", label), { signal }),
      (card) => this.showLabelCard(card, points),
    );
  }

  /**
   * Show the senses of a label as islands, and go there.
   * @param {LabelCard} card
   * @param {Uint32Array} points of the label
   */
  showLabelCard(card, points) {
    const { label, kind, count, senses } = card;
    const groups = this.pointsBySense(card, points);
    const islands = groups.map((group, sense) => this.makeIsland(card, group, sense));
    const summary = `${label}, ${kind}: ${plural(count, "tag set")}, ${plural(senses.length, "sense")}`;
    const showSense = (/** @type {number} */ sense) => this.goTo(groups[sense]);
    this.light(
      groups.map((group, sense) => ({ points: group, colour: token(senseColour(sense)) })),
      islands.filter((island) => island !== null),
    );
    this.showCard(labelCard(card, showSense, this.hits(points)), summary);
    this.goTo(points);
  }

  /**
   * Return the points of a label by sense.
   * @param {LabelCard} card
   * @param {Uint32Array} points
   */
  pointsBySense({ senses }, points) {
    /** @type {Map<number, number>} */
    const senseOf = new Map();
    senses.forEach(({ documents }, sense) => {
      for (const document of documents) senseOf.set(document, sense);
    });
    /** @type {number[][]} */
    const groups = Array.from({ length: Math.max(1, senses.length) }, () => []);
    for (const point of points) {
      const sense = senseOf.get(this.space.document[point]) ?? 0;
      groups[sense].push(point);
    }
    return groups;
  }

  /**
   * @param {LabelCard} card
   * @param {number[]} points
   * @param {number} sense
   * @returns {Island | null} nothing where there are too few points
   */
  makeIsland({ label, senses }, points, sense) {
    if (points.length < 3) return null;
    const words = (senses[sense]?.words || []).slice(0, 3).join(", ");
    const text = senses.length > 1 ? `${sense + 1}  ${words}` : words || label;
    return { ...islandOf(this.space.xy, points), colour: senseColour(sense), sense, text };
  }

  /** Show a known tag set by its number. @param {number} index */
  async showDocument(index) {
    const { api } = this.context;
    const points = this.space.ofDocument(index);
    this.search.set("");
    this.light([{ points, colour: token("--accent") }]);
    await this.ask(
      "Looking up the tag set…",
      (signal) => api.get(api.model("documents", index), { signal }),
      (card) => this.showDocumentCard(card, points),
    );
  }

  /**
   * Show a tag set and those near it as stars, and go there.
   * @param {{id: string | null, labels: string[], neighbours: Neighbour[]}} card
   * @param {Uint32Array} points of the tag set
   */
  showDocumentCard(card, points) {
    const neighbours = card.neighbours.map(({ document }) => this.space.ofDocument(document));
    const nearPoints = neighbours.flatMap((near) => Array.from(near));
    this.light([
      { points: nearPoints, colour: token("--sense-2") },
      { points, colour: token("--accent") },
    ]);
    this.overlay.stars = [
      ...neighbours.map((near) => this.star(near, "--sense-2")),
      this.star(points, "--accent"),
    ];
    this.names = Array.from(points, (point) => this.nameOf(point));
    this.showCard(documentCard(card), `Tag set: ${card.labels.join(", ")}`);
    this.goTo([...points, ...points, ...nearPoints], 0.15);
  }

  /** Return a caption above a point. @param {number} point @returns {Anchor} */
  nameOf(point) {
    return {
      key: `d${point}`,
      text: this.space.labels[this.space.label[point]],
      ...placeOf(this.space, point),
      level: 2,
      className: "caption-own",
      above: 15,
    };
  }

  /**
   * Return a tag set as a star: its middle, and where its tags lie.
   * @param {Uint32Array} points
   * @param {string} colour
   */
  star(points, colour) {
    const ends = Array.from(points, (point) => placeOf(this.space, point));
    return { colour, middle: centreOf(this.space.xy, points), ends };
  }

  /** Show where something lands. @param {{x: number, y: number, text: string}} ghost */
  showGhost(ghost) {
    this.light([]);
    this.overlay.ghost = ghost;
    this.showCard(ghostCard(ghost));
    this.points.fly(ghost.x, ghost.y, this.points.fitScale * 4);
  }

  /**
   * Light groups of points up, and draw islands around some; nothing else stays drawn.
   * @param {Group[]} groups
   * @param {Island[]} [islands]
   */
  light(groups, islands = []) {
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
    const places = Array.from(points, (point) => placeOf(this.space, point));
    const [x0, x1] = innerRange(
      places.map((place) => place.x),
      edgeShare,
    );
    const [y0, y1] = innerRange(
      places.map((place) => place.y),
      edgeShare,
    );
    // Room around them: a share of their extent, and some pixels for a single point.
    const pad = 0.12 * Math.max(x1 - x0, y1 - y0) + 12 / (this.points.fitScale * 8);
    this.points.fit([x0 - pad, y0 - pad, x1 + pad, y1 + pad], 500);
  }

  /**
   * Return the first tag sets of some points, `HITS` at the most.
   * @param {ArrayLike<number>} points
   * @returns {TagSet[]}
   */
  hits(points) {
    /** @type {Set<number>} */
    const documents = new Set();
    for (let k = 0; k < points.length && documents.size < HITS; k += 1) {
      documents.add(this.space.document[points[k]]);
    }
    return [...documents].map((document) => ({ document, labels: this.space.tags(document) }));
  }

  /* ---- the tip ---- */

  /**
   * Show the tip of the dot under the pointer.
   * @param {number} x in CSS pixels; NaN where the pointer has left
   * @param {number} y
   */
  hover(x, y) {
    const hasNone = Number.isNaN(x) || this.isLasso;
    const point = hasNone ? -1 : this.points.pick(x, y, HOVER_REACH);
    this.points.canvas.classList.toggle("on-dot", point >= 0);
    if (point < 0) this.hideTip();
    else this.showTip(point);
  }

  /** Name the label of a dot, and the tags beside it. @param {number} point */
  showTip(point) {
    const place = placeOf(this.space, point);
    const [x, y] = this.points.toScreen(place.x, place.y);
    if (this.hovered !== point) clear(this.tip, this.tipText(point));
    this.hovered = point;
    this.tip.hidden = false;
    this.tip.classList.toggle("tip-left", x > this.points.width * 0.65);
    this.tip.style.setProperty("transform", `translate(${x.toFixed(0)}px, ${y.toFixed(0)}px)`);
    this.overlay.dot = place;
    this.overlay.draw(this.points);
  }

  /** @param {number} point */
  tipText(point) {
    const label = this.space.labels[this.space.label[point]];
    const tags = this.space.tags(this.space.document[point]);
    const others = tags.filter((tag) => tag !== label);
    return [h("strong", label), h("span", others.join(", "))];
  }

  hideTip() {
    if (this.tip.hidden) return;
    this.tip.hidden = true;
    this.hovered = -1;
    this.overlay.dot = null;
    this.overlay.draw(this.points);
  }

  /* ---- selections ---- */

  /** @param {boolean} isOn */
  setLasso(isOn) {
    this.isLasso = isOn;
    this.lassoButton.setAttribute("aria-pressed", String(isOn));
    this.points.canvas.classList.toggle("lassoing", isOn);
    if (isOn) this.context.toast("Draw around dots to see the tags they share.", { seconds: 3 });
  }

  /**
   * @param {[number, number][]} polygon in CSS pixels
   * @param {boolean} isDone whether the pointer was lifted
   */
  drawLasso(polygon, isDone) {
    this.overlay.lasso = polygon.map(([x, y]) => this.points.toMap(x, y));
    this.overlay.draw(this.points);
    if (isDone) this.select(this.points.within(polygon));
  }

  /** Show what the tag sets in sight share. */
  selectView() {
    const { width, height } = this.points;
    /** @type {[number, number][]} */
    const corners = [
      [0, 0],
      [width, 0],
      [width, height],
      [0, height],
    ];
    this.select(this.points.within(corners));
  }

  /** Show what the tag sets of some points share. @param {number[]} points */
  async select(points) {
    this.setLasso(false);
    this.hideTip();
    if (!points.length) return this.context.toast("There is no dot inside.");
    const { api, route } = this.context;
    const { lasso } = this.overlay;
    if (route.args.length) history.replaceState(null, "", "#/map");
    route.args = [];
    this.search.set("");
    this.restartControl();
    this.light([{ points, colour: token("--accent") }]);
    this.overlay.lasso = lasso;
    const all = [...new Set(points.map((point) => this.space.document[point]))];
    const body = { documents: sampleOf(all, MAX_SENT) };
    await this.ask(
      "Counting the tags they share…",
      (signal) => api.post(api.model("documents/shared"), body, { signal }),
      (shared) => this.showSelection(shared, points, all.length),
    );
  }

  /**
   * @param {{n: number, labels: import("./cards.js").SharedLabel[]}} shared
   * @param {number[]} points
   * @param {number} total of the tag sets
   */
  showSelection(shared, points, total) {
    const labels = shared.labels.slice(0, 3).map(({ label }) => label);
    const summary = `${plural(total, "tag set")} selected; they share ${labels.join(", ") || "no tag"}`;
    this.isSelection = true;
    this.showCard(selectionCard(shared, this.hits(points), total), summary);
  }

  /* ---- after each frame ---- */

  /** Draw captions and shapes over the points. */
  drawOver() {
    const { points } = this;
    // As the service's levels, and a little more: words may come before there is room for all.
    const zoom = Math.log2(Math.max(0.7, points.scale / points.fitScale)) + 0.8;
    const isLit = points.groups.length > 0;
    const anchors = isLit ? [] : this.anchors.filter((anchor) => anchor.shown <= zoom);
    const islandNames = this.islands.map((island) => this.islandName(island));
    this.captions.place(points, [...islandNames, ...this.names, ...anchors]);
    this.overlay.draw(points);
    if (!this.tip.hidden && points.isMoving) this.hideTip();
    this.report();
  }

  /** Return a caption above an island. @param {Island} island @returns {Anchor} */
  islandName({ x, y, a, b, turn, sense, text }) {
    // From the middle of the turned ellipse to its top.
    const rise = Math.hypot(a * Math.sin(turn), b * Math.cos(turn)) * this.points.scale;
    return {
      key: `island ${sense} ${text}`,
      text,
      x,
      y,
      level: 2,
      above: rise + 18,
      keep: true,
      className: `caption-island sense-${(sense % SENSES.length) + 1}`,
    };
  }

  /** Tell tests what is shown. */
  report() {
    const { points, space } = this;
    Object.assign(this.hook, {
      n: space.n,
      scale: points.scale / points.fitScale,
      highlighted: points.groups.reduce((sum, group) => sum + group.points.length, 0),
      islands: this.islands.length,
      captions: this.captions.shown.size,
      renderer: points.painter.kind,
      frames: points.frames,
      full: points.fullFrames,
      budget: Math.round(points.budget),
      points,
    });
  }
}

/**
 * Return the range of some numbers without a share at each end.
 * @param {number[]} numbers
 * @param {number} share
 */
function innerRange(numbers, share) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const last = sorted.length - 1;
  return [sorted[Math.round(share * last)], sorted[Math.round((1 - share) * last)]];
}

/**
 * Return at most `n` of some numbers, evenly spread.
 * @param {number[]} numbers
 * @param {number} n
 */
function sampleOf(numbers, n) {
  if (numbers.length <= n) return numbers;
  const step = numbers.length / n;
  return Array.from({ length: n }, (_, i) => numbers[Math.floor(i * step)]);
}
