// Tells claw which session a request belongs to, who asked for it, and which conversation a
// sub-agent works for. Without this plugin claw finds all three out from the request itself, as
// well as that goes.

const MAX_SESSIONS = 1000;
const SUBAGENT = /:subagent:/;
// what starts a run without a person; "manual" and "overflow" are a compaction's
const HELPERS = { heartbeat: "heartbeat", cron: "cron", memory: "memory", manual: "side", overflow: "side" };

// session id -> turn type of its newest run
const types = new Map();
// session key -> session id, and child's session key -> the key of who asked for it
const ids = new Map();
const parents = new Map();

function keep(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > MAX_SESSIONS) map.delete(map.keys().next().value);
}

function remember(event, ctx) {
  if (!ctx?.sessionId) return undefined;
  keep(types, ctx.sessionId, turnType(ctx));
  if (ctx.sessionKey) keep(ids, ctx.sessionKey, ctx.sessionId);
  return undefined;
}

// undefined: claw decides from the words. A sub-agent's run has the trigger "user" too, and so has
// the run that hands a sub-agent's result over: only its provenance tells that no person spoke.
function turnType(ctx) {
  if (SUBAGENT.test(ctx.sessionKey ?? "")) return "subagent";
  if (ctx.trigger in HELPERS) return HELPERS[ctx.trigger];
  const from = ctx.inputProvenance?.kind;
  if (from && from !== "external_user") return undefined;
  return ctx.trigger === "user" ? "main" : undefined;
}

function adopt(event, ctx) {
  const child = event?.childSessionKey ?? ctx?.childSessionKey;
  if (child && ctx?.requesterSessionKey) keep(parents, child, ctx.requesterSessionKey);
  return undefined;
}

function parentOf(sessionId) {
  for (const [key, id] of ids) if (id === sessionId) return ids.get(parents.get(key));
  return undefined;
}

function headersOf(sessionId) {
  const headers = {};
  if (!sessionId) return headers;
  headers["X-Session-Id"] = sessionId;
  const type = types.get(sessionId);
  if (type) headers["X-Turn-Type"] = type;
  const parent = type === "subagent" && parentOf(sessionId);
  if (parent) headers["X-Parent-Session-Id"] = parent;
  return headers;
}

function withHeaders(streamFn, made) {
  return (model, context, options) =>
    streamFn(model, context, {
      ...options,
      headers: { ...options?.headers, ...made(options?.sessionId) },
    });
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
    api.on("subagent_spawned", adopt);
  },
};
