// @ts-check
/**
 * The studio's shell: which model, which view, what is said to the person.
 *
 * In: the address (`?model=ID#/view/…`). Out: a view, mounted in <main>. A view is a module with
 * `mount(root, context)`, which returns nothing, a function that unmounts it, or
 * `{unmount, update(route)}`; `update` is told of a new address within the same view.
 */

import { $, clear, h } from "./dom.js";
import { Api } from "./api.js";
import { dialog, empty, failed, field, form, icon, iconButton, loading } from "./parts.js";
import { attempt, toast } from "./toasts.js";

/** @typedef {{view: string, args: string[]}} Route */
/** @typedef {{keys: string, does: string}} Shortcut */
/** @typedef {{unmount?: () => void, update?: (route: Route) => void}} Mounted */
/**
 * What a view works with.
 * @typedef {object} Context
 * @property {Api} api
 * @property {any} model the Model JSON
 * @property {any[]} models all models of the service
 * @property {Route} route
 * @property {(hash: string) => void} navigate
 * @property {typeof toast} toast
 * @property {typeof attempt} attempt
 * @property {Record<string, any>} state shared between views, kept while the page is open
 * @property {(scope: string) => boolean} can whether the person may read, review or admin
 * @property {() => Promise<any>} refreshModel reads the Model JSON again
 * @property {(list: Shortcut[]) => void} shortcuts what the view's keys do
 */

/**
 * The views in the order of the tabs and their keys.
 * @type {Record<string, {title: string, load: () => Promise<any>}>}
 */
const VIEWS = {
  map: { title: "Map", load: () => import("./map.js") },
  ask: { title: "Ask", load: () => import("./ask.js") },
  review: { title: "Review", load: () => import("./review.js") },
  vocabulary: { title: "Vocabulary", load: () => import("./vocabulary.js") },
  model: { title: "Model", load: () => import("./model.js") },
};

/** @type {Shortcut[]} */
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
/** @type {Mounted | null} */
let mounted = null;
/** @type {any} */
let context = null;
/** @type {Shortcut[]} */
let viewShortcuts = [];
let turn = 0; // of mounting; a view that is ready too late is dropped
/** @type {Promise<boolean> | null} */
let tokenDialog = null;

/* ------------------------------------------------------------------ the address */

/** Return what the address names. @returns {Route} */
function readRoute() {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  const [view, ...args] = parts.filter(Boolean).map(decode);
  return { view: view in VIEWS ? view : "map", args };
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

/** Show what the new address names; a dialog was about the former one. */
function handleHashChange() {
  if (!context) return;
  for (const box of document.querySelectorAll("dialog[open]")) {
    box.dispatchEvent(new Event("cancel", { cancelable: true }));
  }
  show();
}

/* ------------------------------------------------------------------ views */

/**
 * Show what the address names.
 * @param {boolean} [isNew] mount again although the view is the same
 */
async function show(isNew = false) {
  const route = readRoute();
  const isSame = !isNew && studio.view === route.view;
  context.route = route;
  drawTabs();
  if (isSame && mounted?.update) return mounted.update(route);
  leave();
  turn += 1;
  studio.view = route.view;
  viewShortcuts = [];
  setReady(false);
  document.title = `${VIEWS[route.view].title} · polyseme studio`;
  const root = h("div.view", { class: `view-${route.view}` }, loading());
  clear($("main"), root);
  await mountView(route.view, root, turn);
}

/**
 * Load a view and mount it, unless another one was asked for meanwhile.
 * @param {string} name
 * @param {HTMLElement} root
 * @param {number} ownTurn
 */
async function mountView(name, root, ownTurn) {
  try {
    const view = await VIEWS[name].load();
    if (ownTurn !== turn) return;
    clear(root);
    const result = await view.mount(root, context);
    const mounting = typeof result === "function" ? { unmount: result } : result || {};
    if (ownTurn === turn) mounted = mounting;
    else mounting.unmount?.();
  } catch (error) {
    if (ownTurn !== turn) return;
    studio.errors.push(String(error));
    clear(root,
      failed(error, () => show(true)),
    );
  }
  setReady(true);
}

function leave() {
  mounted?.unmount?.();
  mounted = null;
}

/** Tests wait for `html[data-ready="map"]`. @param {boolean} isReady */
function setReady(isReady) {
  const { dataset } = document.documentElement;
  studio.ready = isReady;
  if (isReady) dataset.ready = studio.view || "none";
  else delete dataset.ready;
}

/* ------------------------------------------------------------------ models */

/** Choose another model; what views remember is of the former one. @param {string} id */
function chooseModel(id) {
  const url = new URL(location.href);
  url.searchParams.set("model", id);
  url.hash = `#/${readRoute().view}`;
  history.replaceState(null, "", url);
  for (const key of Object.keys(state)) delete state[key];
  useModel(id);
  show(true);
}

/** Take a model as the one in use. @param {string} id */
function useModel(id) {
  const model = models.find((candidate) => candidate.id === id) || models[0];
  api.modelId = model.id;
  studio.model = model.id;
  studio.version = model.version;
  context = {
    api,
    model,
    models,
    state,
    navigate,
    toast,
    attempt,
    refreshModel,
    route: readRoute(),
    can: (/** @type {string} */ scope) => context.model.scopes.includes(scope),
    shortcuts: (/** @type {Shortcut[]} */ list) => {
      viewShortcuts = list;
    },
  };
}

async function refreshModel() {
  const fresh = await api.get(api.model());
  models = models.map((model) => (model.id === fresh.id ? fresh : model));
  context.models = models;
  if (context.model.id === fresh.id) context.model = fresh;
  studio.version = fresh.version;
  return fresh;
}

/* ------------------------------------------------------------------ the bar */

function drawTabs() {
  const { view } = readRoute();
  const tabs = Object.entries(VIEWS).map(([name, { title }]) => {
    const props = { href: `#/${name}`, aria_current: name === view ? "page" : null };
    return h("a", props, icon(name), h("span", title));
  });
  clear($("nav.tabs"), tabs);
}

function drawBarEnd() {
  const help = iconButton("help", "Keys", { onclick: showHelp });
  clear($(".bar-end"), models.length > 1 ? modelChoice() : modelName(), help);
}

function modelName() {
  return h("span.model-name", { title: "The model that answers" }, models[0]?.id || "");
}

function modelChoice() {
  const options = models.map(({ id }) =>
    h("option", { value: id, selected: id === api.modelId }, id),
  );
  const onchange = (/** @type {any} */ event) => chooseModel(event.target.value);
  return h("select.model-choice", { aria_label: "Model", onchange }, options);
}

/* ------------------------------------------------------------------ keys */

/** @param {any} event */
function handleKey(event) {
  const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
  if (event.defaultPrevented || hasModifier || $("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  const run = actionOf(event.key);
  if (!run) return;
  run();
  event.preventDefault();
}

/**
 * What a key does everywhere, if anything.
 * @param {string} key
 * @returns {(() => void) | undefined}
 */
function actionOf(key) {
  const searchField = $("main [data-search]");
  const view = Object.keys(VIEWS)[Number(key) - 1];
  if (key === "?") return showHelp;
  if (key === "/" && searchField) return () => searchField.focus();
  if (view) return () => navigate(`#/${view}`);
}

function showHelp() {
  if ($("dialog[open]")) return;
  const isOwn = viewShortcuts.length > 0;
  dialog("Keys", () =>
    h("div.stack",
      isOwn && [h("h3", VIEWS[studio.view].title), shortcutList(viewShortcuts)],
      isOwn && h("h3", "Everywhere"),
      shortcutList(SHORTCUTS),
    ),
  );
}

/** @param {Shortcut[]} shortcuts */
function shortcutList(shortcuts) {
  const rows = shortcuts.map(({ keys, does }) => [
    h("dt", keys.split(" ").map(keyCap)),
    h("dd", does),
  ]);
  return h("dl.keys", rows);
}

/** @param {string} key */
const keyCap = (key) => (key === "…" ? " … " : h("kbd", key));

/* ------------------------------------------------------------------ the token */

/** Ask for a token, in one dialog, however many requests wait for it. */
function askToken() {
  tokenDialog ??= openTokenDialog().finally(() => {
    tokenDialog = null;
  });
  return tokenDialog;
}

/** @returns {Promise<boolean>} whether there is a token to try */
async function openTokenDialog() {
  const title = api.token ? "Another token, please" : "A token, please";
  const text = api.token
    ? "The service does not accept this token."
    : "This service needs a token. It is kept until you close this tab.";
  const token = await dialog(title, (close) => tokenForm(text, close));
  if (token) api.token = token;
  return Boolean(token);
}

/**
 * The form that asks for a token.
 * @param {string} text
 * @param {(token: string) => void} close
 */
function tokenForm(text, close) {
  const input = h("input", {
    type: "password",
    autocomplete: "off",
    name: "token",
    required: true,
    aria_label: "Token",
  });
  return form(
    () => close(input.value.trim()),
    h("p", text),
    field("Token", input),
    h("div.row.end", h("button.primary", { type: "submit" }, "Continue")),
  );
}

/* ------------------------------------------------------------------ the start */

/** Read the models, and show what the address names. */
async function start() {
  const main = $("main");
  clear(main, loading());
  drawTabs();
  try {
    const answer = await api.get("models");
    models = answer.models;
  } catch (error) {
    clear(main, failed(error, start));
    return;
  }
  if (!models.length) {
    drawBarEnd();
    clear(main, noModel());
    setReady(true);
    return;
  }
  useModel(new URL(location.href).searchParams.get("model") || models[0].id);
  drawBarEnd();
  show();
}

function noModel() {
  const text = "Fit one with “polyseme fit”, and start the service with its folder.";
  return empty("No model yet", text);
}

api.onUnauthorized = askToken;
api.onVersion = (/** @type {string} */ version) => {
  studio.version = version;
};
window.addEventListener("hashchange", handleHashChange);
window.addEventListener("keydown", handleKey);
window.addEventListener("error", (event) => studio.errors.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => studio.errors.push(String(event.reason)));
$(".skip").addEventListener("click", (/** @type {Event} */ event) => {
  event.preventDefault();
  $("main").focus();
});
start();
