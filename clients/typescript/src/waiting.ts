// Signals and waits. Nothing of these is left behind when a wait is over: no listener, no timer.

/** Aborted with its parent or by itself. `end` lets go of the parent. */
export class Linked {
  readonly #controller = new AbortController();
  readonly #parent: AbortSignal | undefined;
  readonly #pass = (): void => this.#controller.abort(this.#parent?.reason);

  constructor(parent: AbortSignal | null | undefined) {
    this.#parent = parent ?? undefined;
    if (this.#parent?.aborted) this.#pass();
    else this.#parent?.addEventListener("abort", this.#pass, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  end(): void {
    this.#parent?.removeEventListener("abort", this.#pass);
  }
}

/** Resolves after so many ms; rejects with the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** 32 hex digits. Not `crypto.randomUUID`, which pages have only over https and on localhost. */
export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
