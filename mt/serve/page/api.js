// Calls of the server. A call that `signal` ends rejects with an AbortError.

export async function getSettings() {
  return (await fetch("/frontend/settings")).json();
}

export async function getLanguages() {
  return (await fetch("/languages")).json();
}

export async function post(path, body, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error || `The server answers ${response.status}`);
  }
  return response;
}

// Yields {source, translation} for each sentence as it comes.
export async function* translate(body, signal) {
  const response = await post("/translate", { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [rest, seen] = ["", ""];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const found = JSON.parse(line);
      if (found.error) throw new Error(found.error);
      seen += found.source;
      yield found;
    }
  }
  if (seen !== body.q) throw new Error("The server ended before the translation did");
}
