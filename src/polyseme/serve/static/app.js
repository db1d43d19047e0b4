// @ts-check
/**
 * The studio's shell: which model, which view, what is said to the person.
 *
 * In: the address (`?model=ID#/view/…`). Out: a view, mounted in <main>. A view is a module with
 * `mount(root, context)`, which returns nothing, a function that unmounts it, or
 * `{unmount, update(route)}`; `update` is told of a new address within the same view.
 */

import { $, add, clear, h } from "./dom.js";
import { Api } from "./api.js";
import { dialog, empty, failed, field, form, icon, iconButton, loading } from "./parts.js";

/** @typedef {{view: string, args: string[], hash: string}} Route */
/**
 * @typedef {object} Context
 * @property {Api} api
 * @property {any} model the Model JSON
 * @property {any[]} models all models of the service
 * @property {Route} route
 * @property {(hash: string) => void} navigate
 * @property {(text: string, options?: {undo?: () => void, error?: boolean, seconds?: number}) => void} toast
 * @property {<T>(run: () => Promise<T>) => Promise<T | undefined>} attempt does what a person asked for; what goes wrong is a toast
 * @property {Record<string, any>} state shared between views, kept while the page is open
 * @property {(scope: string) => boolean} can whether the person may read, review or admin
 * @property {() => Promise<any>} refreshModel reads the Model JSON again
 * @property {(list: {keys: string, does: string}[]) => void} shortcuts what the view's keys do
 */

/**
 * The views in the order of the tabs: module, title, key.
 * @type {Record<string, {title: string, load: () => Promise<any>}>}
 */
const VIEWS = {
  map: { title: "Map", load: () => import("./map.js") },
  ask: { title: "Ask", load: () => import("./ask.js") },
  review: { title: "Review", load: () => import("./review.js") },
  vocabulary: { title: "Vocabulary", load: () => import("./vocabulary.js") },
  model: { title: "Model", load: () => import("./model.js") },
};

const SHORTCUTS = [
  { keys: "1 … 5", does: "go to a view" },
  { keys: "/", does: "to the search box" },
  { keys: "?", does: "show these keys" },
  { keys: "Esc", does: "close, or step back" },
];

/** What tests and the curious can read. @type {any} */
const studio = {
  ready: false,
  view: null,
  model: null,
  version: null,
  map: { n: 0, scale: 1, highlighted: 0 },
  errors: [],
};
/** @type {any} */ (window).__studio = studio;

const api = new Api();
/** @type {Record<string, any>} */
const state = {};
/** @type {any[]} */
let models = [];
/** @type {any} */
let mounted = null;
/** @type {any} */
let context = null;
/** @type {{keys: string, does: string}[]} */
let viewKeys = [];
let turn = 0;

/** @returns {Route} */
function route() {
  const [view, ...args] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decode);
  return { view: view in VIEWS ? view : "map", args, hash: location.hash };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {string} hash */
function navigate(hash) {
  if (location.hash === hash) show();
  else location.hash = hash;
}

/**
 * @param {string} text
 * @param {{undo?: () => void, error?: boolean, seconds?: number}} [options]
 */
function toast(text, options = {}) {
  const box = h("div", { class: options.error ? "toast toast-error" : "toast" }, h("span", text));
  const region = $(".toasts");
  const leave = () => box.remove();
  if (options.undo) {
    const undo = options.undo;
    add(box, h("button", { onclick: () => (leave(), undo()) }, "Undo"));
    // One Undo, for the latest change: that of an earlier one would take the later ones back, too.
    for (const earlier of region.querySelectorAll(".toast-undo")) earlier.remove();
    box.classList.add("toast-undo");
  }
  add(box, iconButton("close", "Dismiss", { onclick: leave }));
  while (region.children.length > 2) region.firstChild.remove();
  region.append(box);
  setTimeout(leave, 1000 * (options.seconds || (options.undo || options.error ? 9 : 5)));
}

/** @template T @param {() => Promise<T>} run @returns {Promise<T | undefined>} */
async function attempt(run) {
  try {
    return await run();
  } catch (error) {
    toast(/** @type {Error} */ (error).message, { error: true });
  }
}

/** @type {Promise<boolean> | null} */
let asking = null;

/** One dialog, however many requests wait for the token. */
function askToken() {
  asking =
    asking ||
    dialog(api.token ? "Another token, please" : "A token, please", (close) => {
      const input = h("input", {
        type: "password",
        autocomplete: "off",
        name: "token",
        required: true,
        aria_label: "Token",
      });
      return form(
        () => close(input.value.trim()),
        h("p",
          api.token
            ? "The service does not accept this token."
            : "This service answers only to those who have a token. It is kept until you close this tab.",
        ),
        field("Token", input),
        h("div.row.end", h("button.primary", { type: "submit" }, "Continue")),
      );
    }).then((token) => {
      asking = null;
      if (token) api.token = token;
      return Boolean(token);
    });
  return asking;
}

function showHelp() {
  if ($("dialog[open]")) return;
  const rows = (/** @type {{keys: string, does: string}[]} */ list) =>
    h("dl.keys",
      list.map((shortcut) => [
        h("dt",
          shortcut.keys.split(" ").map((key) => (key === "…" ? " … " : h("kbd", key))),
        ),
        h("dd", shortcut.does),
      ]),
    );
  dialog("Keys", () =>
    h("div.stack",
      viewKeys.length
        ? [h("h3", VIEWS[studio.view].title), rows(viewKeys), h("h3", "Everywhere")]
        : null,
      rows(SHORTCUTS),
    ),
  );
}

/** @param {any} event */
function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]"))
    return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (event.key === "?") showHelp();
  else if (event.key === "/") {
    const field = $("main [data-search]");
    if (!field) return;
    field.focus();
  } else if (/^[1-5]$/.test(event.key)) navigate(`#/${Object.keys(VIEWS)[Number(event.key) - 1]}`);
  else return;
  event.preventDefault();
}

function drawTabs() {
  const currentView = route().view;
  clear(
    $("nav.tabs"),
    Object.entries(VIEWS).map(([name, view]) =>
      h("a", { href: `#/${name}`, aria_current: name === currentView ? "page" : null },
        icon(name),
        h("span", view.title),
      ),
    ),
  );
}

function drawEnd() {
  const ids = models.map((model) => model.id);
  const chooser =
    ids.length > 1
      ? h("select.model-choice", {
            aria_label: "Model",
            onchange: (/** @type {any} */ event) => choose(event.target.value),
          },
          ids.map((id) => h("option", { value: id, selected: id === api.modelId }, id)),
        )
      : h("span.model-name", { title: "The model that answers" }, ids[0] || "");
  clear($(".bar-end"), chooser, iconButton("help", "Keys", { onclick: showHelp }));
}

/** @param {string} id */
function choose(id) {
  const url = new URL(location.href);
  url.searchParams.set("model", id);
  url.hash = `#/${route().view}`;
  history.replaceState(null, "", url);
  for (const key of Object.keys(state)) delete state[key];
  use(id);
  show(true);
}

/** @param {string} id */
function use(id) {
  const model = models.find((candidate) => candidate.id === id) || models[0];
  api.modelId = model.id;
  context = {
    api,
    model,
    models,
    state,
    navigate,
    toast,
    attempt,
    route: route(),
    can: (/** @type {string} */ scope) => context.model.scopes.includes(scope),
    shortcuts: (/** @type {any} */ list) => (viewKeys = list),
    refreshModel: async () => {
      const freshModel = await api.get(api.model());
      models = models.map((model) => (model.id === freshModel.id ? freshModel : model));
      if (context.model.id === freshModel.id) context.model = freshModel;
      context.models = models;
      studio.version = freshModel.version;
      return freshModel;
    },
  };
  studio.model = model.id;
  studio.version = model.version;
}

/** @param {boolean} [anew] mount again although the view is the same */
async function show(anew = false) {
  const newRoute = route();
  const same = !anew && mounted && studio.view === newRoute.view;
  context.route = newRoute;
  drawTabs();
  if (same && mounted.update) return mounted.update(newRoute);
  turn += 1;
  const ownTurn = turn;
  leave();
  studio.view = newRoute.view;
  setReady(false);
  viewKeys = [];
  document.title = `${VIEWS[newRoute.view].title} · polyseme studio`;
  const root = h("div", { class: `view view-${newRoute.view}` }, loading());
  clear($("main"), root);
  try {
    const view = await VIEWS[newRoute.view].load();
    if (ownTurn !== turn) return;
    clear(root);
    const result = await view.mount(root, context);
    const mounting = typeof result === "function" ? { unmount: result } : result || {};
    if (ownTurn !== turn) mounting.unmount?.();
    else mounted = mounting;
  } catch (error) {
    if (ownTurn !== turn) return;
    studio.errors.push(String(error));
    clear(root,
      failed(error, () => show(true)),
    );
  }
  setReady(true);
}

/** Tests wait for `html[data-ready="map"]`. @param {boolean} ready */
function setReady(ready) {
  studio.ready = ready;
  if (ready) document.documentElement.dataset.ready = studio.view || "none";
  else delete document.documentElement.dataset.ready;
}

function leave() {
  mounted?.unmount?.();
  mounted = null;
}

async function start() {
  const main = $("main");
  clear(main, loading());
  drawTabs();
  try {
    models = (await api.get("models")).models;
  } catch (error) {
    clear(main, failed(error, start));
    return;
  }
  drawEnd();
  if (!models.length) {
    clear(main,
      empty("No model yet", "Fit one with “polyseme fit”, and start the service with its folder."),
    );
    setReady(true);
    return;
  }
  use(new URL(location.href).searchParams.get("model") || models[0].id);
  drawEnd();
  show();
}

api.onUnauthorized = askToken;
api.onVersion = (/** @type {string} */ version) => {
  studio.version = version;
};
window.addEventListener("hashchange", () => context && show());
window.addEventListener("keydown", onKey);
$(".skip").addEventListener(
  "click",
  (/** @type {Event} */ event) => (event.preventDefault(), $("main").focus()),
);
window.addEventListener("error", (event) => studio.errors.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => studio.errors.push(String(event.reason)));
start();
