// The page: from what is typed to what is shown.

import { getLanguages, getSettings, post, translate } from "./api.js";
import { Menu } from "./menu.js";
import { coreOf, lookedAt, renderBackdrop, renderSegment, characterOffsets } from "./segments.js";

const TYPING_MILLISECONDS = 250; // of rest, until what is typed is translated
const SEGMENTS_AT_ONCE = 20; // in a question for details
const ALTERNATIVES = 6;

const find = (id) => document.getElementById(id);
const [source, target, backdrop, message, looking] = ["source", "target", "backdrop", "message", "looking"].map(find);
const [fromLanguage, toLanguage, glossary, key] = ["source-language", "target-language", "glossary", "key"].map(find);
const menu = new Menu(find("menu"));

let settings = null;
let languages = [];
let segments = []; // of the translation that is shown
let running = null; // the AbortController of the translation on its way
let timer = 0;

async function start() {
  [settings, languages] = await Promise.all([getSettings(), getLanguages()]);
  fill(fromLanguage, languages.filter((each) => each.targets.length));
  fromLanguage.value = settings.language.source.code;
  fillTargets(settings.language.target.code);
  find("key-box").hidden = !settings.keyRequired;
  fromLanguage.addEventListener("change", () => (fillTargets(toLanguage.value), renew()));
  toLanguage.addEventListener("change", () => (changedPair(), renew()));
  find("swap").addEventListener("click", swap);
  source.addEventListener("input", typed);
  glossary.addEventListener("input", typed);
  key.addEventListener("change", renew);
  find("clear").addEventListener("click", () => ((source.value = ""), typed(), source.focus()));
  find("copy").addEventListener("click", copy);
  find("sure").addEventListener("change", showDoubt);
  find("languages").addEventListener("submit", (event) => event.preventDefault());
  target.addEventListener("pointerover", (event) => pointAt(event.target.closest(".word")));
  target.addEventListener("pointerleave", () => pointAt(document.activeElement?.closest?.(".word")));
  target.addEventListener("focusin", (event) => pointAt(event.target.closest(".word")));
  target.addEventListener("click", (event) => ask(event.target.closest(".word")));
  target.addEventListener("keydown", moveOrAsk);
  showDoubt();
  changedPair();
  typed();
}

function fill(select, own) {
  select.replaceChildren(...own.map((each) => new Option(each.name, each.code)));
}

function fillTargets(wanted) {
  const own = languages.find((each) => each.code === fromLanguage.value).targets;
  fill(toLanguage, languages.filter((each) => own.includes(each.code)));
  if (own.includes(wanted)) toLanguage.value = wanted;
  changedPair();
}

function model() {
  return settings.models.find((each) => each.source === fromLanguage.value && each.target === toLanguage.value);
}

function changedPair() {
  const back = settings.models.some((each) => each.source === toLanguage.value && each.target === fromLanguage.value);
  find("swap").disabled = !back;
  source.lang = backdrop.lang = fromLanguage.value;
  target.lang = toLanguage.value;
  for (const id of ["glossary-box", "colour", "help"]) find(id).hidden = !model().details;
}

function swap() {
  const [from, text] = [fromLanguage.value, segments.map((each) => each.translation).join("")];
  fromLanguage.value = toLanguage.value;
  fillTargets(from);
  source.value = text;
  typed();
}

function pair() {
  return { source: fromLanguage.value, target: toLanguage.value, ...(key.value ? { api_key: key.value } : {}) };
}

function say(line) {
  message.hidden = !line;
  message.textContent = line;
}

function terms() {
  const found = {};
  for (const line of glossary.value.split("\n").filter((each) => each.trim())) {
    const [, from, to] = line.match(/^\s*(.+?)\s*[=\t]\s*(.+?)\s*$/) ?? [];
    if (!from) throw new Error(`Glossary: “${line.trim()}” is not a term, = and its translation`);
    found[from] = to;
  }
  return found;
}

function typed() {
  const count = characterOffsets(source.value).length - 1;
  find("characters").textContent = `${count.toLocaleString("en")} / ${settings.charLimit.toLocaleString("en")}`;
  find("clear").hidden = !count;
  renderBackdrop(backdrop, source.value, []);
  renew();
}

function renew() {
  running?.abort();
  clearTimeout(timer);
  menu.close(false);
  target.setAttribute("aria-busy", String(Boolean(source.value.trim())));
  timer = setTimeout(run, TYPING_MILLISECONDS);
}

async function run() {
  const control = (running = new AbortController());
  const count = characterOffsets(source.value).length - 1;
  try {
    if (count > settings.charLimit) {
      throw new Error(`This text has ${count - settings.charLimit} characters more than the server takes`);
    }
    const own = model().details ? { glossary: terms() } : {};
    const found = [];
    const sentences = source.value.trim() ? translate({ q: source.value, ...pair(), ...own }, control.signal) : [];
    for await (const segment of sentences) {
      found.push(segment);
      if (found.length === 1) show(found);
      else target.append(renderSegment(segment, found.length - 1));
    }
    show(found);
    say("");
    if (model().details) await addDetails([...found.keys()], control.signal);
  } catch (error) {
    if (control.signal.aborted) return;
    say(error.message);
  }
  target.setAttribute("aria-busy", "false");
}

function show(found) {
  segments = found;
  target.replaceChildren(...found.map(renderSegment));
  find("copy").hidden = !found.length || !navigator.clipboard;
  looking.textContent = "";
}

// Asks for the details of segments, given by their numbers, and shows them.
async function addDetails(numbers, signal) {
  const wanted = numbers.filter((number) => segments[number].source.trim() && segments[number].translation.trim());
  while (wanted.length) {
    const group = [];
    let size = 0;
    while (wanted.length && group.length < SEGMENTS_AT_ONCE) {
      size += segments[wanted[0]].source.length + segments[wanted[0]].translation.length;
      if (group.length && size > settings.charLimit) break;
      group.push(wanted.shift());
    }
    const texts = (name) => group.map((number) => coreOf(segments[number][name]).text);
    const body = { q: texts("source"), translations: texts("translation"), ...pair() };
    const details = await (await post("/details", body, signal)).json();
    group.forEach((number, index) => {
      segments[number].details = details[index];
      showSegment(number);
    });
  }
  if (!target.querySelector('.word[tabindex="0"]')) target.querySelector(".word")?.setAttribute("tabindex", "0");
}

function showSegment(number) {
  target.querySelector(`[data-segment="${number}"]`).replaceWith(renderSegment(segments[number], number));
}

function placeOf(word) {
  return { number: Number(word.closest("[data-segment]").dataset.segment), index: Number(word.dataset.word) };
}

function pointAt(word) {
  target.querySelector(".current")?.classList.remove("current");
  if (!word) {
    looking.textContent = "";
    renderBackdrop(backdrop, source.value, []);
    return;
  }
  const { number, index } = placeOf(word);
  const { line, places } = lookedAt(segments, number, index);
  word.classList.add("current");
  looking.textContent = line;
  renderBackdrop(backdrop, source.value, places);
}

async function ask(word) {
  if (!word) return;
  const { number, index } = placeOf(word);
  const segment = segments[number];
  const core = coreOf(segment.translation).text;
  const prefix = core.slice(0, characterOffsets(core)[segment.details.target[index].start]).trimEnd();
  const control = running;
  menu.wait(word, "…");
  try {
    const body = { q: coreOf(segment.source).text, prefix, count: ALTERNATIVES, ...pair() };
    const found = await (await post("/alternatives", body, control.signal)).json();
    if (!found.length) menu.wait(word, "No other words");
    else menu.open(word, found, (choice) => put(number, index, choice.translation));
  } catch (error) {
    menu.close(true);
    if (!control.signal.aborted) say(error.message);
  }
}

// Puts another translation of a sentence in the place of the one shown.
async function put(number, index, translation) {
  const segment = segments[number];
  const core = coreOf(segment.translation);
  const end = segment.translation.slice(core.start + core.text.length);
  segment.translation = segment.translation.slice(0, core.start) + translation + end;
  segment.details = undefined;
  showSegment(number);
  const control = running;
  try {
    await addDetails([number], control.signal);
  } catch (error) {
    if (!control.signal.aborted) say(error.message);
    return;
  }
  const words = target.querySelectorAll(`[data-segment="${number}"] .word`);
  focus(words[Math.min(index, words.length - 1)]);
}

function focus(word) {
  if (!word) return;
  target.querySelectorAll('.word[tabindex="0"]').forEach((each) => (each.tabIndex = -1));
  word.tabIndex = 0;
  word.focus();
}

function moveOrAsk(event) {
  const word = event.target.closest(".word");
  if (!word) return;
  const words = [...target.querySelectorAll(".word")];
  const place = words.indexOf(word);
  const places = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: words.length - 1 };
  if (event.key === "Enter" || event.key === " ") ask(word);
  else if (event.key in places) focus(words[places[event.key]]);
  else return;
  event.preventDefault();
}

async function copy() {
  await navigator.clipboard.writeText(segments.map((each) => each.translation).join(""));
  looking.textContent = "Copied";
}

function showDoubt() {
  target.classList.toggle("sure", find("sure").checked);
}

start().catch((error) => say(`The server does not answer (${error.message})`));
