"""The tables of the journal."""

FORMAT = 1

SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE traces(
  id TEXT PRIMARY KEY, owner TEXT, session TEXT, plugin TEXT, grp TEXT, ended TEXT, body TEXT);
CREATE INDEX traces_session ON traces(session);
CREATE TABLE turns(
  id TEXT PRIMARY KEY, trace_id TEXT, parent TEXT, idx INTEGER, kind TEXT, state TEXT, reason TEXT,
  render TEXT, body TEXT, created REAL, updated REAL);
CREATE INDEX turns_state ON turns(state);
CREATE INDEX turns_trace ON turns(trace_id);
CREATE TABLE texts(digest BLOB PRIMARY KEY, body TEXT) WITHOUT ROWID;
CREATE TABLE parts(
  turn_id TEXT, part TEXT, position INTEGER, digest BLOB,
  PRIMARY KEY(turn_id, part, position)) WITHOUT ROWID;
CREATE TABLE arrays(
  record TEXT, name TEXT, dtype TEXT, shape TEXT, data BLOB, PRIMARY KEY(record, name));
CREATE TABLE signals(n INTEGER PRIMARY KEY, turn_id TEXT, body TEXT, created REAL);
CREATE INDEX signals_turn ON signals(turn_id);
CREATE TABLE samples(
  id TEXT PRIMARY KEY, turn_id TEXT, state TEXT, reason TEXT, lease_id TEXT, created REAL,
  body TEXT);
CREATE INDEX samples_state ON samples(state);
CREATE INDEX samples_turn ON samples(turn_id);
CREATE TABLE leases(id TEXT PRIMARY KEY, state TEXT, version INTEGER, body TEXT, at REAL);
CREATE TABLE versions(
  owner TEXT, adapter TEXT, number INTEGER, status TEXT, body TEXT,
  PRIMARY KEY(owner, adapter, number));
CREATE TABLE events(n INTEGER PRIMARY KEY, at REAL, kind TEXT, subject TEXT, text TEXT);
CREATE INDEX events_subject ON events(subject);
"""

LATER = """
CREATE TABLE IF NOT EXISTS pictures(digest TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shown(
  turn_id TEXT, digest TEXT, PRIMARY KEY(turn_id, digest)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS shown_digest ON shown(digest);
CREATE TABLE IF NOT EXISTS kin(
  trace_id TEXT PRIMARY KEY, parent TEXT, turn_id TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kin_parent ON kin(parent);
"""
"""what turns show, and the pictures, once each; which conversation asked for which, and in which
turn; an older journal gets them when it is opened"""
