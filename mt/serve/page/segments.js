// The translation as sentences and words on the page. Text is only ever put in as text, never as HTML.

const DOUBT = 0.5; // below this probability a word is marked
const STRONG_DOUBT = 0.2;
const SEEN = 0.04; // the least share of attention that is shown
const percent = (share) => `${Math.round(100 * share)} %`;

// A segment: {source, translation, details}; details are those of the server, of the texts without their ends.
export function coreOf(text) {
  const start = text.length - text.trimStart().length;
  return { start, text: text.trim() };
}

// Python counts characters, JavaScript halves of those beyond the first 65,536.
export function characterOffsets(text) {
  const offsets = [];
  let place = 0;
  for (const character of text) {
    offsets.push(place);
    place += character.length;
  }
  offsets.push(place);
  return offsets;
}

export function renderSegment(segment, number) {
  const element = document.createElement("span");
  element.dataset.segment = number;
  const core = coreOf(segment.translation);
  const offsets = characterOffsets(core.text);
  element.append(segment.translation.slice(0, core.start));
  let end = 0;
  (segment.details?.target ?? []).forEach((word, index) => {
    const [from, to] = [offsets[word.start], offsets[word.end]];
    element.append(core.text.slice(end, from), renderWord(core.text.slice(from, to), word, index));
    end = to;
  });
  element.append(core.text.slice(end), segment.translation.slice(core.start + core.text.length));
  return element;
}

function renderWord(text, word, index) {
  const element = document.createElement("span");
  element.className = "word";
  if (word.probability < STRONG_DOUBT) element.classList.add("doubt-strong");
  else if (word.probability < DOUBT) element.classList.add("doubt");
  element.dataset.word = index;
  element.setAttribute("role", "button");
  element.setAttribute("aria-haspopup", "listbox");
  element.tabIndex = -1;
  element.textContent = text;
  return element;
}

// Returns what a word looked at: [{start, end, share}] in the whole source text, and a line that says it.
export function lookedAt(segments, number, index) {
  const segment = segments[number];
  const core = coreOf(segment.source);
  const offsets = characterOffsets(core.text);
  const begin = segments.slice(0, number).reduce((sum, each) => sum + each.source.length, 0) + core.start;
  const word = segment.details.target[index];
  const places = segment.details.source
    .map((place, i) => ({ start: offsets[place.start], end: offsets[place.end], share: word.attention[i] }))
    .filter((place) => place.share >= SEEN);
  const best = [...places].sort((a, b) => b.share - a.share).slice(0, 4);
  const named = best.map((place) => `${core.text.slice(place.start, place.end)} ${percent(place.share)}`);
  const own = coreOf(segment.translation).text;
  const own_offsets = characterOffsets(own);
  const line =
    `${own.slice(own_offsets[word.start], own_offsets[word.end])}: ${percent(word.probability)} sure` +
    (named.length ? `; looks at ${named.join(", ")}` : "; looks at the end of the sentence");
  return { line, places: places.map((place) => ({ ...place, start: begin + place.start, end: begin + place.end })) };
}

// Fills the sheet behind the source text: the same text, with marks.
export function renderBackdrop(backdrop, text, places) {
  const parts = [];
  let end = 0;
  for (const place of places) {
    const mark = document.createElement("mark");
    mark.style.setProperty("--weight", Math.min(0.1 + 0.45 * place.share, 0.55).toFixed(2));
    mark.textContent = text.slice(place.start, place.end);
    parts.push(text.slice(end, place.start), mark);
    end = place.end;
  }
  backdrop.replaceChildren(...parts, text.slice(end) + "\n"); // a last line break has no height of its own
}
