"use strict";
// Tabs and controls, and the start of the page.

const views = { predict, neighbours: findNeighbours, contrast, errors: listErrors };
const current = () => document.querySelector('[role="tab"][aria-selected="true"]').getAttribute("aria-controls");

function openTab(name) {
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const here = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", String(here));
    tab.tabIndex = here ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !here;
  }
  views[name]();
}

function connect() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  tabs.forEach((tab, index) => {
    tab.onclick = () => openTab(tab.getAttribute("aria-controls"));
    tab.onkeydown = (event) => {
      const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const chosen = tabs[(next + tabs.length) % tabs.length];
      openTab(chosen.getAttribute("aria-controls"));
      chosen.focus();
    };
  });
  let timer = 0;
  const soon = (view) => { say("Computing."); clearTimeout(timer); timer = setTimeout(view, 150); };
  for (const name of ["predict", "neighbours", "contrast", "errors"]) $(`${name}-form`).onsubmit = (event) => { event.preventDefault(); views[name](); };
  $("model").onchange = $("compare").onchange = () => views[current()]();
  $("example").onchange = takeExample;
  $("effects").onchange = predict;
  $("corpus").onchange = $("method").onchange = findNeighbours;
  $("own-file").onchange = async () => {
    const [file] = $("own-file").files;
    if (!file) return;
    say("Computing.");
    $("own-sentences").value = await file.text();
    findNeighbours();
  };
  $("objective").onchange = drawParameters;
  $("contrast-form").oninput = (event) => {
    if (event.target.id === "objective") return;
    if (event.target.nextElementSibling?.tagName === "OUTPUT" && !event.target.dataset.parameter) event.target.nextElementSibling.textContent = event.target.value;
    soon(contrast);
  };
  for (const name of ["task", "gold", "predicted", "only-wrong"]) $(name).onchange = () => {
    if (name === "task") { $("gold").value = $("predicted").value = ""; Object.assign(errors, { order: "row", descending: false }); }
    errors.start = 0;
    listErrors();
  };
  $("download").onclick = download;
}

async function start() {
  connect();
  try {
    setup = await (await ask("explore/setup")).json();
  } catch (error) {
    return say(error.message, true);
  }
  const names = Object.keys(setup.models);
  $("model").append(...names.map((name) => make("option", { value: name }, name)));
  $("compare").append(...names.map((name) => make("option", { value: name }, name)));
  if (names.length === 2) $("compare").value = names[1];
  const corpora = Object.entries(setup.dev_sets);
  $("corpus").append(...corpora.map(([task, set]) => make("option", { value: task }, `${task}: ${set.sentences} dev sentences`)), make("option", { value: "" }, "your own sentences"));
  $("task").append(...corpora.filter(([, set]) => set.models.length).map(([task]) => make("option", {}, task)));
  fillExamples();
  const form = setup.objectives[$("objective").value];
  $("description").textContent = form.description;
  $("parameters").replaceChildren(...form.controls.map(drawControl));
  if (Object.keys(setup.models[names[0]]).length) openTab("predict");
  else openTab("contrast"); // an encoder without tasks predicts nothing
}

start();
