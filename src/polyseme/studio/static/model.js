// @ts-check
/**
 * Model: what the model is, how far it can be believed, and what was done to it.
 *
 * In: the Model JSON, its reliability, versions and verdicts. Out: versions restored, answers
 * undone, the model loaded or fitted again.
 */

import { add, clear, h, uid } from "./dom.js";
import { confirmed, count, empty, fact, failed, icon, loading } from "./parts.js";
import { percent, plural, probabilityText } from "./parts.js";
import { outboxOf } from "./answers.js";
import { hashOf } from "./cards.js";
import { mediaWords } from "./items.js";
import { KINDS, KIND_NAMES, showReliability } from "./reliability.js";

/** @typedef {import("./api.js").Verdict} Verdict */
/** @typedef {import("./api.js").Version} Version */
/** @typedef {import("./app.js").Context} Context */

/** What is measured: field, name, short name, meaning. */
const MEASURES = [
  [
    "e_map",
    "Tags of an item",
    "E-MAP",
    "How high an item's true tags stand in its ranking: the mean precision of its first 1, 2, … m places, for an item with m true tags. 100 % is perfect.",
  ],
  [
    "c_map",
    "Items of a tag",
    "C-MAP",
    "How high the items that carry a tag stand when all items are ranked for it. 100 % is perfect.",
  ],
  [
    "precision",
    "Precision",
    "",
    "How many of the suggested tags are true, at a probability of at least 0.5.",
  ],
  [
    "recall",
    "Recall",
    "",
    "How many of the true tags are suggested, at a probability of at least 0.5.",
  ],
];

/**
 * What the model is compared with, by the name that the service has for it: in plain words.
 * @type {Record<string, string>}
 */
const BASELINES = {
  "ridge regression": "a linear model (ridge regression)",
  "most frequent labels": "the most frequent tags, for every item",
};
/** Where `quality.baselines` has a figure: [E-MAP seen, C-MAP seen, E-MAP unseen, C-MAP unseen]. */
const BASELINE_COLUMNS = {
  e_map: { seen: 0, unseen: 2 },
  c_map: { seen: 1, unseen: 3 },
};
const BASELINE_NOTE =
  "Below the model's figures: what simple methods reach on the same items. The model is worth its training where it is clearly better than the linear model. The most frequent tags are what one reaches without looking at an item.";
const SHOWN = 12; // rows of a list until all are asked for
const MOST_VERDICTS = 200; // the latest, that are listed
const POLL = 1000; // milliseconds between two looks at a refit

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function mount(root, context) {
  const view = new ModelView(root, context);
  return () => view.unmount();
}

class ModelView {
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   */
  constructor(root, context) {
    this.context = context;
    this.mayAdmin = context.can("admin");
    this.outbox = outboxOf(context);
    this.isUnmounted = false;
    this.timer = 0; // of the next look at a refit
    this.page = h("div.page");
    /** What the service could not do with the model's folder, if anything. */
    this.trouble = h("div", { role: "alert" });
    /** How far a refit is, or why there was none. */
    this.progress = h("p.muted.small", { role: "status" });
    /** @type {Section | null} */
    this.answers = null;
    this.onOthers = () => void this.answers?.fill();
    add(root, this.page);
    context.shortcuts([]);
    this.draw();
    if (context.model.collection) this.followRefit().catch(() => {});
    this.updateFacts();
    this.outbox.otherListeners.add(this.onOthers);
    this.stopFollowing = this.outbox.follow();
  }

  unmount() {
    this.isUnmounted = true;
    clearTimeout(this.timer);
    this.stopFollowing();
    this.outbox.otherListeners.delete(this.onOthers);
  }

  async updateFacts() {
    try {
      await this.context.refreshModel();
    } catch {
      return; // the former facts stay
    }
    if (this.isUnmounted) return;
    this.drawTrouble();
    this.page.querySelector(".facts")?.replaceWith(facts(this.context.model));
  }

  /* ---- what a person does ---- */

  /**
   * Run an action, and show what is so afterwards.
   * @param {() => Promise<string>} run returns what was done
   */
  async act(run) {
    const { attempt, toast, refreshModel } = this.context;
    await attempt(async () => toast(await run()));
    await refreshModel().catch(() => {});
    if (!this.isUnmounted) this.draw();
  }

  reload() {
    const { api } = this.context;
    return this.act(async () => {
      const { version } = await api.post(api.model("reload"));
      return `Loaded again: version ${version}.`;
    });
  }

  refit() {
    const { api, attempt } = this.context;
    return attempt(async () => {
      await api.post(api.model("refit"));
      await this.followRefit(true);
    });
  }

  /**
   * Show how far the refit is until it ends.
   * @param {boolean} [wasStarted] whether it was running before
   */
  async followRefit(wasStarted = false) {
    const { api } = this.context;
    clearTimeout(this.timer);
    const refit = await api.get(api.model("refit"));
    if (this.isUnmounted) return;
    const isRunning = refit.state === "running";
    clear(this.progress, isRunning ? refitProgress(refit) : refit.reason);
    for (const button of this.page.querySelectorAll("button.refit")) {
      button.toggleAttribute("disabled", isRunning || !this.mayAdmin);
    }
    if (isRunning) {
      const look = () => this.followRefit(true).catch(() => {});
      this.timer = window.setTimeout(look, POLL);
    } else if (wasStarted && refit.state === "done") {
      await this.act(async () => "The model was refitted.");
    }
  }

  /** Go back to a version, once the person has agreed. @param {Version} version */
  async rollBack(version) {
    const { api } = this.context;
    const { number, time, n_labels, n_documents } = version;
    const contents = `${plural(n_labels, "label")} and ${plural(n_documents, "known tag set")}`;
    const text = [
      `The model answers as it did on ${whenText(time)}, with ${contents}.`,
      "Later versions are kept: you can come back to them.",
    ];
    const title = `Back to version ${number}?`;
    if (!(await confirmed(title, h("p", text.join(" ")), "Roll back"))) return;
    await this.act(async () => {
      await api.post(api.model("versions", number, "restore"));
      return `Back to version ${number}.`;
    });
  }

  /** @param {Verdict} verdict */
  undo(verdict) {
    const { api } = this.context;
    return this.act(async () => {
      await api.post(api.model("undo"), { numbers: [verdict.number] });
      return `The answer to “${verdict.label}” was undone.`;
    });
  }

  /* ---- the page ---- */

  /** Show the whole page anew; its sections read what they show. */
  draw() {
    const { api, model, models } = this.context;
    this.drawTrouble();
    this.answers = new Section("Answers", this, async () => {
      const params = { limit: MOST_VERDICTS };
      const { verdicts } = await api.get(api.model("verdicts"), { params });
      return this.verdictList(verdicts);
    });
    const versions = new Section("Versions", this, async () => {
      return this.versionList(await api.get(api.model("versions")));
    });
    const reliability = new Section("How far you can trust the probabilities", this, async () => {
      return showReliability(await api.get(api.model("reliability")));
    });
    clear(this.page,
      this.head(),
      this.trouble,
      models.length > 1 && modelList(models, model),
      h("div.model-grid",
        h("div.model-column",
          card("Facts", "Facts", facts(model)),
          card("Measures", "How good it is", measures(model.quality)),
          card("Headroom", "What would make it better", headroom(model)),
          versions.element,
        ),
        h("div.model-column", reliability.element, this.answers.element),
      ),
    );
  }

  /** The name of the model, its state, and what can be done with it. */
  head() {
    const { model } = this.context;
    return h("header.view-head",
      h("h1", model.id),
      h("span.status", model.status),
      h("span.muted.small.mono.break", model.version),
      h("div.grow"),
      this.progress,
      model.collection &&
        this.adminButton("Refit", {
          class: "refit",
          title: "Learn from the items' tags and all answers, in the background",
          onclick: () => this.refit(),
        }),
      this.adminButton("Reload", {
        title: "Read the model's folder again",
        onclick: () => this.reload(),
      }),
    );
  }

  /**
   * @param {string} text
   * @param {Record<string, any>} props
   */
  adminButton(text, props) {
    const lock = { disabled: true, title: "Your token lacks the scope “admin”" };
    return h("button", this.mayAdmin ? props : { ...props, ...lock }, text);
  }

  drawTrouble() {
    const { trouble } = this.context.model;
    clear(this.trouble, trouble && h("p.notice.notice-error", trouble));
  }

  /** @param {{versions: Version[], current: number}} history */
  versionList({ versions, current }) {
    if (!versions.length) {
      return empty("No versions yet", "The first change to the vocabulary keeps one.");
    }
    const latestFirst = [...versions].sort((a, b) => b.number - a.number);
    const rows = latestFirst.map((version) => this.versionRow(version, version.number === current));
    return shortened(rows, "ol.timeline");
  }

  /**
   * A version in the list, with a button that goes back to it.
   * @param {Version} version
   * @param {boolean} isCurrent
   */
  versionRow(version, isCurrent) {
    const { number, action, detail, time, who, n_labels, n_documents } = version;
    const button = h("button",
      {
        disabled: !this.mayAdmin,
        aria_label: `Roll back to version ${number}`,
        onclick: () => this.rollBack(version),
      },
      "Roll back",
    );
    return h("li", { class: isCurrent ? "current" : null },
      h("div.grow",
        h("p", h("strong", `${number} · ${action}`), detail && ` ${detail}`),
        h("p.muted.small",
          when(time),
          who && ` by ${who}`,
          ` · ${plural(n_labels, "label")}, ${plural(n_documents, "tag set")}`,
        ),
      ),
      isCurrent ? h("span.kind", "in use") : button,
    );
  }

  /** @param {Verdict[]} verdicts */
  verdictList(verdicts) {
    const link = h("a", { href: "#/review" }, "Review some items");
    if (!verdicts.length) return h("p.muted", "Nobody has answered yet. ", link, ".");
    const rows = verdicts.map((verdict) => this.verdictRow(verdict));
    return shortened(rows, "ul.timeline");
  }

  /**
   * An answer in the list, with a button that undoes it where it stands.
   * @param {Verdict} verdict
   */
  verdictRow(verdict) {
    const { item, label, answer, undone, superseded } = verdict;
    const stands = !undone && !superseded;
    return h("li", { class: stands ? null : "undone" },
      verdictMark(answer),
      h("div.grow",
        h("p.break",
          h("a", { href: hashOf("review/label", label) }, label),
          " · ",
          h("a.quiet-link", { href: hashOf("review/item", item) }, item),
        ),
        verdictFacts(verdict),
      ),
      stands &&
        h("button.quiet",
          {
            disabled: !this.context.can("review"),
            aria_label: `Undo the answer to ${label} for ${item}`,
            onclick: () => this.undo(verdict),
          },
          "Undo",
        ),
    );
  }
}

/** A card that reads what it shows. */
class Section {
  /**
   * @param {string} title
   * @param {ModelView} view
   * @param {() => Promise<any>} read returns elements
   */
  constructor(title, view, read) {
    this.view = view;
    this.read = read;
    this.body = h("div.stack", loading());
    this.element = card(title, title, this.body);
    this.fill();
  }

  async fill() {
    try {
      const content = await this.read();
      if (!this.view.isUnmounted) clear(this.body, content);
    } catch (error) {
      if (!this.view.isUnmounted) this.showFailure(/** @type {any} */ (error));
    }
  }

  /** @param {import("./api.js").Problem} problem */
  showFailure(problem) {
    const isAbsent = problem.status === 404;
    clear(this.body,
      isAbsent ? h("p.muted", problem.message) : failed(problem, () => this.retry()),
    );
  }

  retry() {
    clear(this.body, loading());
    this.fill();
  }
}

/**
 * @param {string} name for screen readers
 * @param {string} title
 * @param {any} content
 */
function card(name, title, content) {
  return h("section.card.stack", { aria_label: name }, h("h2", title), content);
}

/** @param {{rounds: number, rounds_done: number}} refit */
function refitProgress({ rounds, rounds_done }) {
  if (!rounds) return "Refitting …";
  return `Refitting: ${plural(rounds_done, "round")} of ${count(rounds)}.`;
}

/**
 * Links to all models of the service, where there are several.
 * @param {any[]} models
 * @param {any} current
 */
function modelList(models, current) {
  const links = models.map(({ id, trouble, n_labels }) =>
    h("a",
      {
        href: `?model=${encodeURIComponent(id)}#/model`,
        aria_current: id === current.id ? "page" : null,
      },
      h("strong", id),
      h("span.muted.small", trouble ? "needs a look" : plural(n_labels, "label")),
    ),
  );
  return h("nav.model-list", { aria_label: "Models" }, links);
}

/** Sizes and states of the model. @param {any} model */
function facts(model) {
  const { kinds, verdicts } = model;
  const counts = [kinds.seen, kinds.unseen, kinds.oov].map(count);
  return h("dl.facts",
    fact("Labels", count(model.n_labels)),
    fact("Seen, unseen, oov", counts.join(", ")),
    fact("Known tag sets", count(model.n_documents)),
    fact("Features", featuresText(model)),
    fact("Items to review", itemsText(model)),
    fact("Answers", `${count(verdicts.standing)} standing, ${count(verdicts.undone)} undone`),
    fact("Learned from untagged items", model.learned_from_pool ? "yes" : "no"),
    fact("Changed", when(model.changed)),
  );
}

/** @param {any} model */
function featuresText({ media, n_features }) {
  if (!media) return count(n_features);
  return `${count(n_features)}, of ${mediaWords(media).all}`;
}

/** @param {any} model */
function itemsText({ collection }) {
  if (!collection) return "none";
  return `${count(collection.n_items)}, ${count(collection.n_reviewed)} with answers`;
}

/* ------------------------------------------------------------------ measures */

/** The table of measures, beside those of simple methods. @param {any} quality */
function measures(quality) {
  if (!quality) {
    const reason = "measuring was switched off, or there were too few items";
    return h("p.muted", `Nothing was measured when this model was fitted: ${reason}.`);
  }
  const head = KINDS.map((kind) => h("th", { scope: "col" }, KIND_NAMES[kind]));
  return [
    h("p.muted", "Measured on held-out items. Some labels were made unseen for it on purpose."),
    h("table.table.measures",
      h("thead", h("tr", h("th", { scope: "col" }, "Measure"), head)),
      h("tbody",
        MEASURES.map((measure) => [
          measureRow(quality, measure),
          baselineRows(quality.baselines, measure[0]),
        ]),
      ),
    ),
    hasBaselines(quality) && h("p.muted.small", BASELINE_NOTE),
    h("p", precisionSentence(quality.highest_precision_unseen)),
  ];
}

/**
 * @param {any} quality
 * @param {string[]} measure
 */
function measureRow(quality, [field, name, shortName, meaning]) {
  const cells = KINDS.map((kind) => h("td", shareText(quality[kind][field])));
  return h("tr", h("th", { scope: "row" }, explained(name, shortName, meaning)), cells);
}

/** @param {any} quality */
const hasBaselines = ({ baselines }) => Object.keys(baselines).length > 0;

/**
 * What simple methods reach on the same items, below a measure that they were measured by.
 * @param {Record<string, (number | null)[]>} baselines figures in the order of BASELINE_COLUMNS
 * @param {string} field of the measure
 */
function baselineRows(baselines, field) {
  const columns = /** @type {any} */ (BASELINE_COLUMNS)[field];
  if (!columns) return null;
  return Object.entries(baselines).map(([name, figures]) =>
    h("tr.baseline",
      h("th", { scope: "row" }, BASELINES[name] ?? name),
      KINDS.map((kind) => h("td", shareText(figures[columns[kind]]))),
    ),
  );
}

/** @param {number | null} share */
const shareText = (share) => (share === null ? "not measured" : percent(share));

/** @param {number | null} highest */
function precisionSentence(highest) {
  if (!highest) {
    return "The model can promise no precision for unseen tags. If you ask for one, it suggests none of them.";
  }
  return `For unseen tags the model can promise a precision of up to ${percent(highest)}. If you ask for more, it suggests none of them.`;
}

/**
 * A name with its meaning behind a button, for mouse, touch and keyboard.
 * @param {string} name
 * @param {string} shortName
 * @param {string} meaning
 */
function explained(name, shortName, meaning) {
  const id = uid("meaning");
  const tip = h("span.tip-text", { id, hidden: true }, meaning);
  const toggle = () => {
    tip.hidden = !tip.hidden;
    button.setAttribute("aria-expanded", String(!tip.hidden));
  };
  const button = h("button.tip-button",
    {
      aria_label: `What is ${shortName || name}?`,
      aria_expanded: "false",
      aria_controls: id,
      title: meaning,
      onclick: toggle,
    },
    icon("help"),
  );
  const suffix = shortName && h("span.muted.small", shortName);
  return [h("span.tip-name", name, suffix, button), tip];
}

/** What untagged items and answers would bring. @param {any} model */
function headroom({ quality, learned_from_pool }) {
  const poolGain = quality?.pool_gain ?? null;
  const clickGain = quality?.click_gain ?? null;
  if (poolGain === null && clickGain === null) {
    return h("p.muted", "This was not measured when the model was fitted.");
  }
  const link = h("a", { href: "#/review" }, "Answer some");
  return [
    poolGain !== null &&
      h("p", h("strong", "Untagged items. "), poolSentence(poolGain, learned_from_pool)),
    clickGain !== null && h("p", h("strong", "Answers. "), clickSentence(clickGain), link),
    h("p.muted.small",
      "Points are percent of the mean of E-MAP and C-MAP, on tags that were made unseen to find out.",
    ),
  ];
}

/** A gain as people read it: `+1.2 points`. @param {number} gain from -1 to 1 */
function points(gain) {
  return `${gain < 0 ? "−" : "+"}${Math.abs(gain * 100).toFixed(1)} points`;
}

/**
 * @param {number} gain
 * @param {boolean} wasUsed
 */
function poolSentence(gain, wasUsed) {
  if (wasUsed) return `This model has learned from some: ${points(gain)} on unseen tags.`;
  if (gain > 0)
    return `They would bring about ${points(gain)} on unseen tags: fit again with them.`;
  return `They would not help here (${points(gain)} on unseen tags), so they were left out.`;
}

/** @param {number} gain */
function clickSentence(gain) {
  if (gain > 0) {
    return `Ten answers for a tag bring about ${points(gain)}, also on items that nobody was asked about. `;
  }
  return `Ten answers for a tag changed little on other items (${points(gain)}). `;
}

/* ------------------------------------------------------------------ rows */

/** @param {boolean} answer */
function verdictMark(answer) {
  return h("span.said", { class: answer ? "said-yes" : "said-no" },
    icon(answer ? "review" : "close"),
    h("span.sr", answer ? "yes" : "no"),
  );
}

/** @param {Verdict} verdict */
function verdictFacts({ time, who, score, undone, superseded }) {
  const hasScore = score !== null && score !== undefined;
  return h("p.muted.small",
    when(time),
    who && ` by ${who}`,
    hasScore && `, shown ${probabilityText(score)}`,
    undone && ", undone",
    superseded && ", replaced by a later answer",
  );
}

/**
 * The first rows, and a button for all.
 * @param {any[]} rows
 * @param {string} selector of the list
 */
function shortened(rows, selector) {
  const list = h(selector, rows.slice(0, SHOWN));
  if (rows.length <= SHOWN) return list;
  const showAll = () => {
    add(list, rows.slice(SHOWN));
    button.remove();
  };
  const button = h("button", { onclick: showAll }, `Show all ${count(rows.length)}`);
  return [list, button];
}

/** @param {string | null} time */
function whenText(time) {
  const date = new Date(time || "");
  if (Number.isNaN(date.getTime())) return "an unknown day";
  return date.toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
}

/** @param {string | null} time */
const when = (time) => h("time", { datetime: time }, whenText(time));
