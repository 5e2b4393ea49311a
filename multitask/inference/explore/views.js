"use strict";
// The four views: what each asks, and how it draws the answer.

// Predict

const EFFECTS = {
  occlusion: "The effect is what the prediction loses without the word.",
  integrated_gradients: "The effects add up to the prediction minus that of a baseline, the text with padding in place of its tokens. The gap is the error of the numeric integral: do not trust effects that are smaller.",
};

function predict() {
  const texts = [$("first").value, $("second").value].map((text) => text.trim()).filter(Boolean);
  if (!texts.length) return say("Type a sentence.", true);
  const effects = $("effects").value;
  $("effects-help").textContent = EFFECTS[effects];
  const [able, bare] = [true, false].map((wanted) => models().filter((model) => Object.keys(setup.models[model]).length > 0 === wanted));
  return update("predict", able.map((model) => ["explore/predict", { model, texts, effects }]), (answers) =>
    $("predictions").replaceChildren(...answers.map(drawPredictions), ...bare.map((model) =>
      make("div", {}, [make("h2", {}, model), make("p", { class: "note" }, "This model has no tasks, so it predicts nothing. The views Neighbours and Contrast use its embeddings.")]))));
}

function drawPredictions(answer) {
  const parts = Object.entries(answer.tasks).map(([task, found]) => {
    const prediction = found.prediction;
    const headline = prediction.value !== undefined ? shown(prediction.value) : prediction.label ?? (prediction.labels.join(", ") || "no label");
    return make("section", { class: "task", "data-task": task }, [
      make("h3", {}, [`${task}: `, make("strong", {}, headline)]),
      prediction.probabilities ? bars(prediction.probabilities) : "",
      make("p", { class: "note" }, `Effect of each word on ${found.explained === "value" ? "the value" : `the probability of ${found.explained}`}:`),
      words(answer.words, found.effects),
      found.gap === undefined ? "" : make("p", { class: "note completeness" }, completeness(found)),
    ]);
  });
  return make("div", {}, [make("h2", {}, answer.model), ...parts]);
}

function bars(probabilities) {
  const rows = Object.entries(probabilities).map(([label, probability]) => make("tr", {}, [
    make("th", { scope: "row" }, label),
    make("td", { class: "number" }, probability.toFixed(3)),
    make("td", { "aria-hidden": "true" }, make("span", { class: "bar" }, [], { "--share": probability })),
  ]));
  return make("table", { class: "bars" }, [make("caption", { class: "note" }, "Probabilities"), ...rows]);
}

/** Whether the effects of integrated gradients add up to what they should. */
function completeness({ effects, row, baseline, gap }) {
  const sum = effects.reduce((total, effect) => total + effect, 0);
  return `All effects add up to ${signed(sum)}. Text ${shown(row)} minus baseline ${shown(baseline)} is ${signed(row - baseline)}; gap ${signed(gap)}.`;
}

function words(all, effects) {
  const largest = Math.max(...effects.map(Math.abs), 1e-9);
  const pieces = all.flatMap((word, index) => {
    const effect = effects[index];
    const known = effect !== undefined && effect !== null;
    const label = known ? `${word.text}: ${signed(effect)}` : `${word.text}: not computed`;
    const style = known ? { "--share": Math.abs(effect) / largest, "--heat": effect >= 0 ? "var(--pro)" : "var(--con)" } : { "--share": 0 };
    const next = index > 0 && word.column !== all[index - 1].column ? [make("br")] : [" "];
    return [...next, make("span", { class: "word", title: label }, word.text, style)];
  });
  const order = all.map((word, index) => [word.text, effects[index]]).filter(([, effect]) => effect !== undefined && effect !== null)
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  const list = order.map(([text, effect]) => `${text} ${signed(effect)}`).join(", ");
  return make("div", {}, [make("p", { class: "words" }, pieces), make("p", { class: "note" }, `Largest effects: ${list || "none"}`)]);
}

function fillExamples() {
  const groups = Object.entries(setup.dev_sets).filter(([, set]) => set.examples.length).map(([task, set]) =>
    make("optgroup", { label: task }, set.examples.map((texts, index) => make("option", { value: `${task}/${index}` }, texts.join(" | ").slice(0, 90)))));
  $("example").append(...groups);
}

function takeExample() {
  const [task, index] = $("example").value.split("/");
  if (!task) return;
  [$("first").value, $("second").value = ""] = setup.dev_sets[task].examples[index];
  predict();
}

// Neighbours

const lines = (id) => $(id).value.split("\n").map((line) => line.trim()).filter(Boolean);

function findNeighbours() {
  const query = $("query").value.trim();
  const task = $("corpus").value;
  $("own").hidden = task !== "";
  if (!query) return say("Type a sentence.", true);
  const where = task === "" ? { sentences: lines("own-sentences") } : { task };
  const method = $("method").value;
  return update("neighbours", models().map((model) => ["explore/neighbours", { model, query, method, ...where }]), (answers) =>
    $("found").replaceChildren(...answers.map(drawNeighbours)));
}

function drawNeighbours(answer) {
  const labelled = answer.labels.some(Boolean);
  const rows = answer.nearest.map((row) => make("tr", {}, [
    make("td", { class: "number" }, row.cosine.toFixed(3)), make("td", { class: "text" }, row.text), labelled ? make("td", {}, row.label) : ""]));
  const head = make("tr", {}, ["Cosine", "Sentence", ...(labelled ? ["Label"] : [])].map((name) => make("th", { scope: "col" }, name)));
  const plane = answer.variance
    ? `in the plane of their two principal components, which hold ${Math.round(100 * (answer.variance[0] + answer.variance[1]))}% of the variance`
    : "placed by UMAP: neighbours stay together, but distances between groups and directions mean nothing";
  return make("div", {}, [
    make("h2", {}, answer.model),
    make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Nearest sentences, ${answer.model}` }, make("table", {}, [
      make("caption", { class: "note" }, `Nearest of ${answer.sentences} sentences`), head, ...rows])),
    make("h3", {}, "Map"),
    make("p", { class: "note" }, `${answer.texts.length < answer.sentences ? "The first" : "All"} ${answer.texts.length} sentences and the query (the large dot), ${plane}. Point at a dot, or move with the arrow keys.`),
    ...drawMap(answer),
  ]);
}

/** The different labels in order, and the colour of each: its own, or of many labels a shade between blue and red. */
function colouring(all) {
  const labels = [...new Set(all)].sort((a, b) => a - b || (a < b ? -1 : 1));
  const many = (label) => `hsl(${220 - (220 * labels.indexOf(label)) / (labels.length - 1)} 65% 50%)`;
  return { labels, colour: labels.length > COLOURS.length ? many : (label) => COLOURS[labels.indexOf(label)] };
}

function drawMap(answer) {
  const size = 400;
  const all = [...answer.points, answer.query];
  const scale = [0, 1].map((axis) => {
    const values = all.map((point) => point[axis]);
    const low = Math.min(...values);
    const range = Math.max(...values) - low || 1;
    return (value) => 12 + ((value - low) / range) * (size - 24);
  });
  const { labels, colour } = colouring(answer.labels);
  const text = make("p", { class: "point", "aria-live": "polite" }, "");
  const describe = (index) => `${answer.texts[index]}${answer.labels[index] ? ` (${answer.labels[index]})` : ""}`;
  const dots = answer.points.map(([x, y], index) => make("circle", { cx: scale[0](x), cy: size - scale[1](y), r: 5, fill: colour(answer.labels[index]) }, make("title", {}, describe(index))));
  const query = make("circle", { class: "query", cx: scale[0](answer.query[0]), cy: size - scale[1](answer.query[1]), r: 7 }, make("title", {}, "the query"));
  const map = make("svg", { class: "map", viewBox: `0 0 ${size} ${size}`, role: "application", tabindex: "0", "aria-label": `Map of ${answer.texts.length} sentences; arrow keys move from left to right` }, [...dots, query]);
  const order = answer.points.map((point, index) => index).sort((a, b) => answer.points[a][0] - answer.points[b][0]);
  let place = -1;
  const choose = (index) => {
    dots.forEach((dot, other) => dot.classList.toggle("chosen", other === index));
    text.textContent = describe(index);
  };
  dots.forEach((dot, index) => dot.addEventListener("pointerenter", () => choose(index)));
  map.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move || !order.length) return;
    event.preventDefault();
    place = (place + move + order.length) % order.length;
    choose(order[place]);
  });
  const ends = labels.length > COLOURS.length ? [labels[0], labels.at(-1)] : labels;
  const named = ends.filter(Boolean).map((label) => make("li", {}, [make("span", { class: "swatch" }, [], { "--heat": colour(label) }), label]));
  return [map, text, named.length ? make("ul", { class: "legend", "aria-label": "Labels" }, named) : ""];
}

// Contrast

/** The controls of an objective's parameters, and a function that reads them. */
function drawParameters() {
  const form = setup.objectives[$("objective").value];
  $("description").textContent = form.description;
  $("parameters").replaceChildren(...form.controls.map(drawControl));
  contrast();
}

function drawControl(control) {
  const id = `parameter-${control.name}`;
  const help = make("span", { class: "help" }, control.help);
  if (control.choices.length) {
    const select = make("select", { id, "data-parameter": control.name }, control.choices.map((name) => make("option", {}, name)));
    select.value = control.default;
    return make("label", { for: id }, [control.name, help, select]);
  }
  const { low, high, logarithmic } = control;
  const value = (place) => (logarithmic ? low * (high / low) ** place : low + (high - low) * place);
  const place = (number) => (logarithmic ? Math.log(number / low) / Math.log(high / low) : (number - low) / (high - low));
  const range = make("input", { id, type: "range", min: 0, max: 1, step: 0.005, value: place(control.default ?? control.start) });
  const output = make("output", { for: id });
  const on = control.optional ? make("input", { type: "checkbox", "aria-label": `use ${control.name}` }) : null;
  if (on) on.checked = control.default !== null;
  range.dataset.parameter = control.name;
  let moved = false; // the default is kept exactly until the slider moves
  const show = () => {
    const off = on !== null && !on.checked;
    const number = moved ? Number(value(Number(range.value)).toPrecision(3)) : control.default ?? control.start;
    range.disabled = off;
    range.dataset.value = off ? "" : String(Math.min(Math.max(number, low), high));
    output.textContent = off ? "off" : shown(number);
    range.setAttribute("aria-valuetext", output.textContent);
  };
  range.addEventListener("input", () => { moved = true; show(); });
  on?.addEventListener("change", show);
  show();
  return make("label", { for: id }, [control.name, help, make("span", { class: "slider" }, [on ?? "", range, output])]);
}

function parameters() {
  const given = {};
  for (const control of $("parameters").querySelectorAll("[data-parameter]")) {
    const { parameter, value } = control.dataset;
    given[parameter] = control.type === "range" ? (value === "" ? null : Number(value)) : control.value;
  }
  return given;
}

function contrast() {
  const body = {
    sentences: lines("sentences"),
    objective: $("objective").value, parameters: parameters(),
    dropout: Number($("dropout").value), step: Number($("step").value), seed: Math.round(Number($("seed").value)),
  };
  if (body.sentences.length < 2) return say("Type at least two sentences.", true);
  return update("contrast", models().map((model) => ["explore/contrast", { model, ...body }]), (answers) =>
    $("contrasted").replaceChildren(...answers.map(drawContrast)));
}

function drawContrast(answer) {
  const anchors = answer.sentences.map((text, index) => make("tr", {}, [
    make("th", { scope: "row" }, String(index + 1)), make("td", { class: "text" }, text),
    make("td", { class: "number" }, [shown(answer.dissipation[index]), make("span", { class: "bar", "aria-hidden": "true" }, [], { "--share": Math.min(Math.max(answer.dissipation[index] ?? 0, 0), 1) })]),
    make("td", { class: "number" }, shown(answer.hardest_weight[index])),
    make("td", { class: "number" }, shown(answer.ratio[index])),
    make("td", { class: "number" }, shown(answer.alignment_norm[index])),
    make("td", { class: "number" }, shown(answer.uniformity_norm[index])),
    make("td", {}, answer.closer[index] ? "yes" : "no"),
  ]));
  const names = ["Number", "Anchor", "Dissipation", "Hardest negative's weight", "Ratio", "Pull", "Push", "Comes closer"];
  return make("div", { "data-model": answer.model }, [
    make("h2", {}, answer.model),
    make("p", {}, `${answer.losses ? `Loss ${shown(answer.losses[0])}; after the step ${shown(answer.losses[1])}.` : "Of this objective only the gradient has a meaning, not the value."}${answer.residual > 1e-6 ? ` ${shown(100 * answer.residual, 2)}% of the gradient is not explained by the components.` : ""}`),
    make("div", { class: "columns matrices" }, [
      matrix(answer.model, "Cosines of anchors (rows) and positives (columns)", answer.similarity),
      matrix(answer.model, "The same after the step; ▲ and ▼ mark changes above 0.005", answer.similarity_after, answer.similarity),
      matrix(answer.model, "Weights of the negatives (columns) in each anchor's push (rows)", answer.weights.map((row, i) => row.map((weight, j) => (i === j ? null : weight)))),
    ]),
    make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Gradient of each anchor, ${answer.model}` }, make("table", { class: "anchors" }, [
      make("caption", { class: "note" }, "The gradient of each anchor. Dissipation: the share of its push that is left. Ratio: its pull for one unit of push."), make("tr", {}, names.map((name) => make("th", { scope: "col" }, name))), ...anchors])),
  ]);
}

/** A matrix as a table; with `before`, a cell's title and a sign tell how it has changed. */
function matrix(model, caption, values, before) {
  const head = make("tr", {}, [make("td"), ...values.map((_, index) => make("th", { scope: "col", class: "number" }, String(index + 1)))]);
  const rows = values.map((row, i) => make("tr", {}, [make("th", { scope: "row" }, String(i + 1)), ...row.map((value, j) => {
    const change = before && value !== null ? value - before[i][j] : 0;
    const sign = change > 0.005 ? " ▲" : change < -0.005 ? " ▼" : "";
    const style = { "--share": Math.min(Math.abs(value ?? 0), 1), "--heat": (value ?? 0) < 0 ? "var(--con)" : "var(--accent)" };
    return make("td", { class: `number heat${i === j ? " own" : ""}`, ...(before ? { title: `${change >= 0 ? "+" : "−"}${Math.abs(change).toFixed(3)}` } : {}) }, fixed(value) + sign, style);
  })]));
  return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `${caption}, ${model}` }, make("table", { class: "matrix" }, [make("caption", { class: "note" }, caption), head, ...rows]));
}

// Errors

const errors = { order: "row", descending: false, start: 0 };
const request = () => ({
  model: $("model").value, task: $("task").value, gold: $("gold").value || null, predicted: $("predicted").value || null,
  only_wrong: $("only-wrong").checked, ...errors });

function listErrors() {
  if (!$("task").value) return say("There are no dev sets. Start the page with multitask explore --data FOLDER.", true);
  return update("errors", [["explore/errors", request()]], ([answer]) => answer && drawErrors(answer));
}

function drawErrors(answer) {
  for (const name of ["gold", "predicted"]) {
    const chosen = $(name).value;
    const few = answer[name].length <= 50 ? answer[name] : [];
    $(name).replaceChildren(make("option", { value: "" }, "any"), ...few.map((label) => make("option", { value: label }, label)));
    $(name).value = few.includes(chosen) ? chosen : "";
  }
  const sortable = { row: "Row", [answer.numbers ? "error" : "confidence"]: answer.numbers ? "Error" : "Confidence" };
  const heading = (order) => {
    const here = errors.order === order;
    const button = make("button", { type: "button", "data-order": order }, `${sortable[order]}${here ? (errors.descending ? " ▼" : " ▲") : ""}`);
    button.onclick = async () => {
      Object.assign(errors, { descending: here ? !errors.descending : order !== "row", order, start: 0 });
      await listErrors();
      $("errors-table").querySelector(`[data-order="${order}"]`)?.focus();
    };
    return make("th", { scope: "col", "aria-sort": here ? (errors.descending ? "descending" : "ascending") : "none" }, button);
  };
  const head = make("tr", {}, [heading("row"), ...answer.columns.map((name) => make("th", { scope: "col" }, name)),
    make("th", { scope: "col" }, "Label"), make("th", { scope: "col" }, "Predicted"), heading(answer.numbers ? "error" : "confidence"), make("th", { scope: "col" }, "Try")]);
  const rows = answer.rows.map((row) => {
    const look = make("button", { type: "button", "aria-label": `predict row ${row.row}` }, "Predict");
    look.onclick = () => {
      [$("first").value, $("second").value = ""] = row.texts;
      openTab("predict");
      $("first").focus();
    };
    return make("tr", { class: row.error && !answer.numbers ? "wrong" : "" }, [
      make("td", { class: "number" }, String(row.row)), ...row.texts.map((text) => make("td", { class: "text" }, text)),
      make("td", {}, row.gold), make("td", { class: "prediction" }, row.predicted),
      make("td", { class: "number" }, (answer.numbers ? row.error : row.confidence).toFixed(3)), make("td", {}, look)]);
  });
  $("errors-table").replaceChildren(make("thead", {}, head), make("tbody", {}, rows));
  const first = answer.chosen ? errors.start + 1 : 0;
  const part = answer.loaded < answer.total ? ` The page has the first ${answer.loaded} of ${answer.total} rows (--rows).` : "";
  const wrong = answer.numbers ? "" : ` ${answer.wrong} of ${answer.loaded} are wrong.`;
  $("errors-summary").textContent = `${answer.model}: rows ${first} to ${Math.min(errors.start + answer.page, answer.chosen)} of ${answer.chosen}.${wrong}${part}`;
  $("previous").disabled = errors.start === 0;
  $("next").disabled = errors.start + answer.page >= answer.chosen;
  $("next").onclick = () => { errors.start += answer.page; listErrors(); };
  $("previous").onclick = () => { errors.start = Math.max(0, errors.start - answer.page); listErrors(); };
}

async function download() {
  try {
    const file = await (await ask("explore/errors.csv", request())).blob();
    const link = make("a", { href: URL.createObjectURL(file), download: `${$("task").value}-dev.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
    say("Downloaded.");
  } catch (error) {
    say(error.message, true);
  }
}
