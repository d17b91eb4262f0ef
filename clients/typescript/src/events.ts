// Server-sent events out of a stream of bytes, wherever its pieces are cut.

export interface ServerSentEvent {
  event: string;
  data: string;
  id: string;
}

/** Takes text, gives the events that are whole. Comments and unknown fields are left out. */
export class EventParser {
  #rest = "";

  feed(text: string): ServerSentEvent[] {
    const frames = (this.#rest + text).split("\n\n");
    this.#rest = frames.pop() ?? "";
    return frames.map(parsed).filter((each) => each.event !== "");
  }
}

function parsed(frame: string): ServerSentEvent {
  const found = { event: "", data: "", id: "" };
  for (const line of frame.split("\n")) {
    const [, name, value] = /^(event|data|id): ?(.*)$/s.exec(line) ?? [];
    if (name === "event" || name === "data" || name === "id") found[name] = value ?? "";
  }
  return found;
}

/** The events of a body. `alive` is called whenever something came. Returning early cancels the body. */
export async function* eventsOf(
  body: ReadableStream<Uint8Array>,
  alive: () => void,
): AsyncGenerator<ServerSentEvent, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      yield* parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it may have broken off already
  }
}
