// Requests to the service. URLs are relative, so that the page works behind a proxy under any path.

/** An error response, with the service's own message. */
class ApiError extends Error {
  constructor(status, error) {
    super(error.message ?? `the service answered ${status}`);
    this.status = status;
    this.code = error.code ?? "unknown";
    this.fix = error.fix ?? "";
  }
}

/** Fetches the JSON at `path`. Null parameters are left out; an empty scope is a value. */
export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(name, value);
  }
  const text = query.toString();
  const answer = await fetch(`api/v1/${path}${text ? `?${text}` : ""}`, { signal, cache: "no-store" });
  // Of an answer that was cut off or aborted nothing is shown; an error is one even with a text that is not JSON.
  const body = answer.ok ? await answer.json() : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, body.error ?? {});
  return body;
}
