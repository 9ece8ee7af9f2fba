#!/usr/bin/env bash
# MLflow's tracking server with PostgreSQL, for lineage of a cluster:  bash envs/mlflow_server.sh start|stop|status
#
# Both listen on 127.0.0.1 and ask for a password, which is made at the first start. Then:
#   source results/lineage/server/credentials     # MLFLOW_TRACKING_URI, _USERNAME, _PASSWORD, for whoever publishes
#   python -m zerodr publish
# Settings: MLFLOW_SERVER_DIR, MLFLOW_SERVER_HOST (another address makes it visible to others), MLFLOW_SERVER_PORT,
# MLFLOW_SERVER_DB_PORT. PostgreSQL's programs are taken from PATH or from Debian's place.
set -euo pipefail
cd "$(dirname "$0")/.."
home=${MLFLOW_SERVER_DIR:-$PWD/results/lineage/server}
host=${MLFLOW_SERVER_HOST:-127.0.0.1}
port=${MLFLOW_SERVER_PORT:-5000}
db_port=${MLFLOW_SERVER_DB_PORT:-5433}
python=.venv/bin/python; [ -x "$python" ] || python=$(command -v python)
for place in /usr/lib/postgresql/*/bin; do [ -d "$place" ] && PATH=$PATH:$place; done

die() { echo "mlflow server: $*" >&2; exit 1; }
as_database() { # PostgreSQL refuses to run as root
  if [ "$(id -u)" = 0 ]; then (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); else "$@"; fi
}
ours() { [ -s "$home/mlflow.pid" ] && tr '\0' ' ' <"/proc/$(cat "$home/mlflow.pid")/cmdline" 2>/dev/null | grep -q "mlflow server"; }
database() { as_database pg_ctl -D "$home/data" "$@"; }
secret() { head -c 24 /dev/urandom | base64 | tr '+/' '-_'; }

prepare() {
  command -v initdb >/dev/null || die "PostgreSQL is not installed (initdb): apt-get install postgresql, or: conda install postgresql"
  "$python" -c "import psycopg2, flask_wtf" 2>/dev/null || die "psycopg2 or flask_wtf is absent: bash envs/create.sh"
  [ -s "$home/credentials" ] && return 0
  mkdir -p "$home/artifacts"
  local password database_password words
  password=$(secret) database_password=$(secret)
  words=$(mktemp); chmod 600 "$words"; printf '%s' "$database_password" >"$words"
  mkdir -p "$home/data"; chmod 700 "$home/data"
  if [ "$(id -u)" = 0 ]; then chown postgres "$home/data" "$words"; fi
  as_database initdb -D "$home/data" -U zerodr -A scram-sha-256 --pwfile="$words" -E UTF8 --locale=C >"$home/initdb.log" 2>&1 ||
    { rm -f "$words"; rm -rf "$home/data"; die "initdb failed, see $home/initdb.log"; }
  rm -f "$words"
  (umask 077
    cat >"$home/auth.ini" <<INI
[mlflow]
default_permission = READ
database_uri = postgresql://zerodr:$database_password@127.0.0.1:$db_port/auth
admin_username = zerodr
admin_password = $password
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
INI
    cat >"$home/store" <<STORE
export MLFLOW_BACKEND_STORE_URI=postgresql://zerodr:$database_password@127.0.0.1:$db_port/mlflow
export MLFLOW_FLASK_SERVER_SECRET_KEY=$(secret)
export PGPASSWORD=$database_password
STORE
    cat >"$home/credentials" <<WORDS
export MLFLOW_TRACKING_URI=http://127.0.0.1:$port MLFLOW_TRACKING_USERNAME=zerodr MLFLOW_TRACKING_PASSWORD=$password
WORDS
  )
}

start() {
  ours && { echo "already running: http://$host:$port"; return 0; }
  prepare
  # shellcheck disable=SC1091
  . "$home/store"
  database status >/dev/null 2>&1 || database -w -o "-c listen_addresses=127.0.0.1 -p $db_port -k ''" -l "$home/data/server.log" start >/dev/null ||
    die "PostgreSQL did not start, see $home/data/server.log"
  for name in mlflow auth; do
    psql -h 127.0.0.1 -p "$db_port" -U zerodr -d postgres -tAc "select 1 from pg_database where datname='$name'" | grep -q 1 ||
      createdb -h 127.0.0.1 -p "$db_port" -U zerodr "$name"
  done
  unset PGPASSWORD
  MLFLOW_AUTH_CONFIG_PATH=$home/auth.ini MLFLOW_DISABLE_TELEMETRY=true setsid "$python" -m mlflow server --app-name basic-auth \
    --host "$host" --port "$port" --workers 1 --artifacts-destination "$home/artifacts" </dev/null >>"$home/mlflow.log" 2>&1 &
  echo $! >"$home/mlflow.pid"
  for _ in $(seq 1 "${MLFLOW_SERVER_PATIENCE_S:-180}"); do
    "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=2)" 2>/dev/null && {
      echo "http://$host:$port; user and password: source $home/credentials"; return 0; }
    ours || break
    sleep 1
  done
  die "did not start, see $home/mlflow.log"
}

stop() {
  if ours; then kill -- "-$(cat "$home/mlflow.pid")"; fi
  rm -f "$home/mlflow.pid"
  if [ -d "$home/data" ]; then database -m fast stop >/dev/null 2>&1 || true; fi
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  status) ours && database status >/dev/null && echo "http://$host:$port" || { echo "not running"; exit 1; } ;;
  *) sed -n '2,9p' "$0"; exit 2 ;;
esac
