// @ts-check
/**
 * Model: what the model is, how far it can be believed, and what was done to it.
 *
 * In: the Model JSON, its reliability, versions and verdicts. Out: versions restored, answers
 * undone, the model loaded or fitted again.
 */

import { add, clear, h, s, uid } from "./dom.js";
import {
  confirmed,
  count,
  empty,
  fact,
  failed,
  icon,
  loading,
  percent,
  plural,
  probabilityText,
} from "./parts.js";
import { outboxOf } from "./answers.js";
import { to } from "./cards.js";

/** @typedef {import("./app.js").Context} Context */

/** What is measured: field, name, meaning. */
const MEASURES = [
  [
    "e_map",
    "E-MAP",
    "How high an item's true tags stand in its ranking: the mean precision of its first 1, 2, … m places, for an item with m true tags. 100 % would be perfect.",
  ],
  [
    "c_map",
    "C-MAP",
    "How high the items that carry a tag stand when all items are ranked for it. 100 % would be perfect.",
  ],
  [
    "precision",
    "Precision",
    "Of the tags that are suggested, the share that is true, at a probability of at least 0.5.",
  ],
  [
    "recall",
    "Recall",
    "Of the true tags, the share that is suggested, at a probability of at least 0.5.",
  ],
];
const KIND_WORDS = /** @type {Record<string, string>} */ ({
  seen: "Seen tags",
  unseen: "Unseen tags",
});
const ANSWERS = "Answers";
const SHOWN = 12;
const FEW = 10; // tags; the share of fewer that are true says little

/** @param {HTMLElement} root @param {Context} context */
export function mount(root, context) {
  const page = h("div.page");
  const box = outboxOf(context);
  let gone = false;
  /** Reads again what people answered. */
  let readAnswers = () => {};
  add(root, page);

  /**
   * Run an action of the person, and show what is so afterwards.
   * @param {() => Promise<string>} run
   */
  const act = async (run) => {
    await context.attempt(async () => context.toast(await run()));
    await context.refreshModel().catch(() => {});
    if (!gone) draw();
  };

  /**
   * A section that reads what it shows.
   * @param {string} title
   * @param {() => Promise<any>} read
   * @param {(found: any) => any} show
   */
  const section = (title, read, show) => {
    const body = h("div.stack", loading());
    const fill = async () => {
      try {
        const found = await read();
        if (!gone) clear(body, show(found));
      } catch (error) {
        if (gone) return;
        const { status, message } = /** @type {any} */ (error);
        const isAbsent = status === 404;
        clear(body, isAbsent ? h("p.muted", message) : failed(error, refill));
      }
    };
    const refill = () => {
      clear(body, loading());
      fill();
    };
    fill();
    if (title === ANSWERS) readAnswers = fill;
    return h("section.card.stack", { aria_label: title }, h("h2", title), body);
  };

  /** What the service could not do with the model's folder, if anything. */
  const trouble = h("div", { role: "alert" });
  const drawTrouble = () =>
    clear(trouble, context.model.trouble && h("p.notice.notice-error", context.model.trouble));

  /** How far a refit is, or why there was none. */
  const refitting = h("p.muted.small", { role: "status" });
  let watching = 0;
  /**
   * Show how far the refit is until it ends.
   * @param {boolean} [wasStarted] by this person, just now
   */
  const followRefit = async (wasStarted = false) => {
    clearTimeout(watching);
    const {
      state,
      rounds_done: done,
      rounds,
      reason,
    } = await context.api.get(context.api.model("refit"));
    if (gone) return;
    const isRunning = state === "running";
    const progress = rounds
      ? `Refitting: ${plural(done, "round")} of ${count(rounds)}.`
      : "Refitting …";
    clear(refitting, isRunning ? progress : reason);
    for (const button of page.querySelectorAll("button.refit"))
      button.toggleAttribute("disabled", isRunning || !context.can("admin"));
    if (isRunning) watching = window.setTimeout(() => followRefit(true).catch(() => {}), 1000);
    else if (wasStarted && state === "done") await act(async () => "The model was refitted.");
  };

  const draw = () => {
    const { api, model, models } = context;
    drawTrouble();
    const may = context.can("admin");
    const refit = () =>
      context.attempt(async () => {
        await api.post(api.model("refit"));
        await followRefit(true);
      });
    const reload = () =>
      act(async () => `Loaded again: version ${(await api.post(api.model("reload"))).version}.`);
    clear(page,
      h("header.view-head",
        h("h1", model.id),
        h("span.status", model.status),
        h("span.muted.small.mono.break", model.version),
        h("div.grow"),
        refitting,
        model.collection &&
          h("button.refit", {
              disabled: !may,
              title: may
                ? "Learn from the items' tags and all answers, in the background"
                : "Your token lacks the scope “admin”",
              onclick: refit,
            },
            "Refit",
          ),
        h("button", {
            disabled: !may,
            title: may ? "Read the model's folder again" : "Your token lacks the scope “admin”",
            onclick: reload,
          },
          "Reload",
        ),
      ),
      trouble,
      models.length > 1 && modelList(models, model),
      h("div.model-grid",
        h("div.model-column",
          h("section.card.stack", { aria_label: "Facts" }, h("h2", "Facts"), facts(model)),
          h("section.card.stack", { aria_label: "Measures" },
            h("h2", "How good it is"),
            measures(model),
          ),
          h("section.card.stack", { aria_label: "Headroom" },
            h("h2", "What would make it better"),
            headroom(model),
          ),
        ),
        section("How far probabilities can be believed",
          () => api.get(api.model("reliability")),
          reliability,
        ),
        section("Versions",
          () => api.get(api.model("versions")),
          (found) => versions(found, context, may, act),
        ),
        section(ANSWERS,
          () => api.get(api.model("verdicts"), { params: { limit: 200 } }),
          (found) => verdicts(found.verdicts, context, act),
        ),
      ),
    );
  };
  context.shortcuts([]);
  draw();
  if (context.model.collection) followRefit().catch(() => {});
  context.refreshModel().then(
    () => {
      if (gone) return;
      drawTrouble();
      page.querySelector(".facts")?.replaceWith(facts(context.model));
    },
    () => {},
  );
  const onOthers = () => readAnswers();
  box.others.add(onOthers);
  const stop = box.follow();
  return () => {
    gone = true;
    clearTimeout(watching);
    stop();
    box.others.delete(onOthers);
  };
}

/** @param {any[]} models @param {any} here */
function modelList(models, here) {
  return h("nav.model-list", { aria_label: "Models" },
    models.map((one) =>
      h("a", {
          href: `?model=${encodeURIComponent(one.id)}#/model`,
          aria_current: one.id === here.id ? "page" : null,
        },
        h("strong", one.id),
        h("span.muted.small", one.trouble ? "needs a look" : plural(one.n_labels, "label")),
      ),
    ),
  );
}

/** @param {any} model */
function facts(model) {
  const { kinds, collection } = model;
  return h("dl.facts",
    fact("Labels", count(model.n_labels)),
    fact("Seen, unseen, oov", `${count(kinds.seen)}, ${count(kinds.unseen)}, ${count(kinds.oov)}`),
    fact("Known tag sets", count(model.n_documents)),
    fact("Features",
      model.media
        ? `${count(model.n_features)}, of ${model.media === "image" ? "pictures" : "sound"}`
        : count(model.n_features),
    ),
    fact("Items to review",
      collection
        ? `${count(collection.n_items)}, ${count(collection.n_reviewed)} with answers`
        : "none",
    ),
    fact("Answers",
      `${count(model.verdicts.standing)} standing, ${count(model.verdicts.undone)} undone`,
    ),
    fact("Untagged items", model.learned_from_pool ? "were learned from" : "were not learned from"),
    fact("Changed", when(model.changed)),
  );
}

/* ------------------------------------------------------------------ measures */

/** @param {any} model */
function measures({ quality }) {
  if (!quality)
    return h("p.muted",
      "Nothing was measured when this model was fitted: measuring was switched off, or there were too few items.",
    );
  const found = ["seen", "unseen"];
  const value = (/** @type {number | null} */ share) =>
    share === null ? "not measured" : percent(share);
  return [
    h("p.muted", "On items that were held out, and with labels made unseen on purpose."),
    h("table.table.measures",
      h("thead",
        h("tr",
          h("th", { scope: "col" }, "Measure"),
          found.map((kind) => h("th", { scope: "col" }, KIND_WORDS[kind])),
        ),
      ),
      h("tbody",
        MEASURES.map(([field, name, meaning]) =>
          h("tr",
            h("th", { scope: "row" }, explained(name, meaning)),
            found.map((kind) => h("td", value(quality[kind][field]))),
          ),
        ),
      ),
    ),
    h("p", promised(quality)),
  ];
}

/** @param {any} quality */
function promised({ highest_precision_unseen: highest }) {
  return highest
    ? `Of unseen tags a precision of up to ${percent(highest)} can be promised; if more is asked for, none is given.`
    : "No precision can be promised of unseen tags; where one is asked for, none is given.";
}

/**
 * A word with its meaning behind a button, for mouse, touch and keyboard.
 * @param {string} name
 * @param {string} meaning
 */
function explained(name, meaning) {
  const id = uid("meaning");
  const tip = h("span.tip-text", { id, hidden: true }, meaning);
  const button = h("button.tip-button", {
      aria_label: `What is ${name}?`,
      aria_expanded: "false",
      aria_controls: id,
      title: meaning,
      onclick: () => {
        tip.hidden = !tip.hidden;
        button.setAttribute("aria-expanded", String(!tip.hidden));
      },
    },
    icon("help"),
  );
  return [h("span.tip-name", name, button), tip];
}

/** @param {any} model */
function headroom({ quality, learned_from_pool: pooled }) {
  const points = (/** @type {number} */ gain) =>
    `${gain < 0 ? "−" : "+"}${Math.abs(gain * 100).toFixed(1)} points`;
  const pool = quality?.pool_gain ?? null;
  const clicks = quality?.click_gain ?? null;
  if (pool === null && clicks === null)
    return h("p.muted", "This was not measured when the model was fitted.");
  return [
    pool !== null &&
      h("p",
        h("strong", "Untagged items. "),
        pooled
          ? `This model has learned from some: ${points(pool)} on unseen tags.`
          : pool > 0
            ? `They would bring about ${points(pool)} on unseen tags: fit again with them.`
            : `They would not help here (${points(pool)} on unseen tags), so they were left out.`,
      ),
    clicks !== null &&
      h("p",
        h("strong", "Answers. "),
        clicks > 0
          ? `Ten answers for a tag bring it about ${points(clicks)}, also on items that nobody was asked about. `
          : `Ten answers for a tag changed little on other items (${points(clicks)}). `,
        h("a", { href: "#/review" }, "Answer some"),
      ),
    h("p.muted.small",
      "Points are percent of the mean of E-MAP and C-MAP, on tags that were made unseen to find out.",
    ),
  ];
}

/* ------------------------------------------------------------------ reliability */

/** @param {any} found */
function reliability(found) {
  const kinds = ["seen", "unseen"].filter((kind) => found[kind].length);
  const hasFew = kinds.some((kind) => found[kind].some(isFew));
  if (!kinds.length) return h("p.muted", "Nothing was measured when this model was fitted.");
  return [
    h("p.muted",
      "Of all tags that got about this probability, how many were true? On the line, what is said is what is so; below it, the model promises too much. ",
      hasFew && `Faint dots stand for fewer than ${FEW} tags and are no part of the line.`,
    ),
    h("div.reliability",
      diagram(found, kinds),
      h("div.series-names",
        kinds.map((kind) => h("span", { class: `series-name-${kind}` }, KIND_WORDS[kind])),
      ),
    ),
    h("details.fold",
      h("summary", "The figures"),
      h("div.scroll-x",
        h("table.table",
          h("thead",
            h("tr",
              ["Kind", "Probability", "True", "Tags"].map((name) =>
                h("th", { scope: "col" }, name),
              ),
            ),
          ),
          h("tbody",
            kinds.map((kind) =>
              found[kind].map((/** @type {any} */ one) =>
                h("tr",
                  h("th", { scope: "row" }, kind),
                  h("td", percent(one.predicted)),
                  h("td", percent(one.observed)),
                  h("td", count(one.n)),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
    found.thresholds.length > 0 && [
      h("h3", "What precision can be asked for"),
      h("div.scroll-x",
        h("table.table",
          h("thead",
            h("tr",
              h("th", { scope: "col" }, "Precision"),
              h("th", { scope: "col" }, "Seen tags from"),
              h("th", { scope: "col" }, "Unseen tags from"),
            ),
          ),
          h("tbody",
            found.thresholds.map((/** @type {any} */ one) =>
              h("tr",
                h("th", { scope: "row" }, percent(one.precision)),
                [one.seen, one.unseen].map((from) =>
                  h("td", { class: from === null ? "muted" : null },
                    from === null ? "cannot be promised" : probabilityText(from),
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
    ],
  ];
}

/** @param {{n: number}} bin */
const isFew = (bin) => bin.n < FEW;

/**
 * Predicted against observed; the area of a dot is how many tags it stands for.
 * @param {any} found
 * @param {string[]} kinds
 */
function diagram(found, kinds) {
  const [size, left, top] = [220, 40, 10];
  const x = (/** @type {number} */ share) => left + share * size;
  const y = (/** @type {number} */ share) => top + (1 - share) * size;
  const most = Math.max(
    ...kinds.flatMap((kind) => found[kind].map((/** @type {any} */ one) => one.n)),
    1,
  );
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const says = kinds.map((kind) => {
    const all =
      found[kind].reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.n, 0) ||
      1;
    const off =
      found[kind].reduce(
        (/** @type {number} */ sum, /** @type {any} */ one) =>
          sum + one.n * Math.abs(one.predicted - one.observed),
        0,
      ) / all;
    return `${KIND_WORDS[kind]} are off by ${percent(off)} on average`;
  });
  return s("svg.diagram", {
      viewBox: `0 0 ${left + size + 14} ${top + size + 40}`,
      role: "img",
      aria_label: `Reliability: ${says.join("; ")}.`,
    },
    ticks.map((at) => [
      s("line.grid", { x1: x(at), x2: x(at), y1: y(0), y2: y(1) }),
      s("line.grid", { x1: x(0), x2: x(1), y1: y(at), y2: y(at) }),
      s("text", { x: x(at), y: y(0) + 16, text_anchor: "middle" }, String(at * 100)),
      s("text", { x: x(0) - 6, y: y(at) + 4, text_anchor: "end" }, String(at * 100)),
    ]),
    s("text.axis", { x: x(0.5), y: y(0) + 34, text_anchor: "middle" }, "probability given, %"),
    s("text.axis", { transform: `translate(10 ${y(0.5)}) rotate(-90)`, text_anchor: "middle" },
      "true, %",
    ),
    s("line.ideal", { x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    kinds.map((kind) =>
      s("g", { class: `series series-${kind}` },
        s("polyline", {
          points: found[kind]
            .filter((/** @type {any} */ one) => !isFew(one))
            .map(
              (/** @type {any} */ one) =>
                `${x(one.predicted).toFixed(1)},${y(one.observed).toFixed(1)}`,
            )
            .join(" "),
        }),
        found[kind].map((/** @type {any} */ one) =>
          s("circle", {
              class: isFew(one) ? "few" : null,
              cx: x(one.predicted),
              cy: y(one.observed),
              r: (2.5 + 4.5 * Math.sqrt(one.n / most)).toFixed(1),
            },
            s("title",
              `${KIND_WORDS[kind]}: said ${percent(one.predicted)}, true ${percent(one.observed)}, of ${plural(one.n, "tag")}`,
            ),
          ),
        ),
      ),
    ),
  );
}

/* ------------------------------------------------------------------ versions, answers */

/**
 * @param {any} found
 * @param {Context} context
 * @param {boolean} may
 * @param {(run: () => Promise<string>) => Promise<void>} act
 */
function versions(found, context, may, act) {
  const { api } = context;
  const list = [...found.versions].sort((a, b) => b.number - a.number);
  if (!list.length)
    return empty("No versions yet", "The first change to the vocabulary keeps one.");
  const isCurrent = (/** @type {any} */ one) => one.number === found.current;
  const back = async (/** @type {any} */ one) => {
    const says = `The model answers as it did on ${whenText(one.time)}, with ${plural(one.n_labels, "label")} and ${plural(one.n_documents, "known tag set")}. Later versions are kept: you can come back to them.`;
    if (await confirmed(`Back to version ${one.number}?`, h("p", says), "Roll back"))
      await act(
        async () => (
          await api.post(api.model("versions", one.number, "restore")),
          `Back to version ${one.number}.`
        ),
      );
  };
  const rows = list.map((one) =>
    h("li", { class: isCurrent(one) ? "current" : null },
      h("div.grow",
        h("p", h("strong", `${one.number} · ${one.action}`), one.detail && ` ${one.detail}`),
        h("p.muted.small",
          when(one.time),
          one.who && ` by ${one.who}`,
          ` · ${plural(one.n_labels, "label")}, ${plural(one.n_documents, "tag set")}`,
        ),
      ),
      isCurrent(one)
        ? h("span.kind", "in use")
        : h("button", {
              disabled: !may,
              aria_label: `Roll back to version ${one.number}`,
              onclick: () => back(one),
            },
            "Roll back",
          ),
    ),
  );
  return shortened(rows, (shown) => h("ol.timeline", shown));
}

/**
 * @param {any[]} list
 * @param {Context} context
 * @param {(run: () => Promise<string>) => Promise<void>} act
 */
function verdicts(list, context, act) {
  const { api } = context;
  const may = context.can("review");
  if (!list.length)
    return h("p.muted",
      "Nobody has answered yet. ",
      h("a", { href: "#/review" }, "Review some items"),
      ".",
    );
  const undo = (/** @type {any} */ one) =>
    act(
      async () => (
        await api.post(api.model("undo"), { numbers: [one.number] }),
        `The answer to “${one.label}” was undone.`
      ),
    );
  const rows = list.map((one) =>
    h("li", { class: one.undone || one.superseded ? "undone" : null },
      h("span", { class: one.answer ? "said said-yes" : "said said-no" },
        icon(one.answer ? "review" : "close"),
        h("span.sr", one.answer ? "yes" : "no"),
      ),
      h("div.grow",
        h("p.break",
          h("a", { href: to("review/label", one.label) }, one.label),
          " · ",
          h("a.quiet-link", { href: to("review/item", one.item) }, one.item),
        ),
        h("p.muted.small",
          when(one.time),
          one.who && ` by ${one.who}`,
          one.score !== null && one.score !== undefined && `, shown ${probabilityText(one.score)}`,
          one.undone && ", undone",
          one.superseded && ", replaced by a later answer",
        ),
      ),
      !one.undone &&
        !one.superseded &&
        h("button.quiet", {
            disabled: !may,
            aria_label: `Undo the answer to ${one.label} for ${one.item}`,
            onclick: () => undo(one),
          },
          "Undo",
        ),
    ),
  );
  return shortened(rows, (shown) => h("ul.timeline", shown));
}

/** The first rows, and a button for all. @param {any[]} rows @param {(rows: any[]) => any} wrap */
function shortened(rows, wrap) {
  if (rows.length <= SHOWN) return wrap(rows);
  const list = wrap(rows.slice(0, SHOWN));
  const all = h("button", { onclick: () => (add(list, rows.slice(SHOWN)), all.remove()) },
    `Show all ${count(rows.length)}`,
  );
  return [list, all];
}

/** @param {string | null} time */
function whenText(time) {
  const date = new Date(time || "");
  return Number.isNaN(date.getTime())
    ? "an unknown day"
    : date.toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
}

/** @param {string | null} time */
const when = (time) => h("time", { datetime: time }, whenText(time));
