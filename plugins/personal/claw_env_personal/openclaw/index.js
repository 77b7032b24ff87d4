// Tells claw which session a request belongs to, and whether a person asked for it.
// Without this plugin claw finds both out from the request itself, as well as that goes.

const MAX_SESSIONS = 1000;
const SIDE = new Set(["heartbeat", "cron", "memory"]);

// what started the newest run of each session
const triggers = new Map();

function remember(event, ctx) {
  if (!ctx?.sessionId) return undefined;
  triggers.delete(ctx.sessionId);
  triggers.set(ctx.sessionId, ctx.trigger);
  if (triggers.size > MAX_SESSIONS) triggers.delete(triggers.keys().next().value);
  return undefined;
}

// undefined: claw decides from the words
function turnType(sessionId) {
  return SIDE.has(triggers.get(sessionId)) ? "side" : undefined;
}

function withHeaders(streamFn, headersOf) {
  return (model, context, options) =>
    streamFn(model, context, {
      ...options,
      headers: { ...options?.headers, ...headersOf(options?.sessionId) },
    });
}

function headersOf(sessionId) {
  const headers = {};
  if (sessionId) headers["X-Session-Id"] = sessionId;
  const type = turnType(sessionId);
  if (type) headers["X-Turn-Type"] = type;
  return headers;
}

export default {
  id: "claw",
  name: "claw",
  register(api) {
    api.registerProvider({
      id: "claw",
      label: "claw",
      wrapStreamFn: ({ streamFn }) => streamFn && withHeaders(streamFn, headersOf),
      // titles, summaries and probes: nobody reads them as an answer
      wrapSimpleCompletionStreamFn: ({ streamFn }) =>
        streamFn && withHeaders(streamFn, (id) => ({ ...headersOf(id), "X-Turn-Type": "side" })),
    });
    api.on("before_prompt_build", remember);
  },
};
