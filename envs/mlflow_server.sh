#!/usr/bin/env bash
# MLflow's tracking server with PostgreSQL, for lineage of a cluster:  bash envs/mlflow_server.sh start|stop|status
#
# Both listen on 127.0.0.1 and ask for a password, which is made at the first start. Then:
#   source results/lineage/server/credentials     # MLFLOW_TRACKING_URI, _USERNAME, _PASSWORD, for whoever publishes
#   zerodr publish
# Settings: MLFLOW_SERVER_DIR, MLFLOW_SERVER_PORT, MLFLOW_SERVER_DB_PORT, MLFLOW_SERVER_HOST (another address of this
# machine, or 0.0.0.0 for all of them, makes MLflow visible to others; PostgreSQL stays on 127.0.0.1).
# PostgreSQL's programs are taken from PATH or from Debian's place.
set -euo pipefail
cd "$(dirname "$0")/.."
home=${MLFLOW_SERVER_DIR:-$PWD/results/lineage/server}
host=${MLFLOW_SERVER_HOST:-127.0.0.1}
port=${MLFLOW_SERVER_PORT:-5000}
db_port=${MLFLOW_SERVER_DB_PORT:-5433}
shown=$host asked=$host # what others connect to, and what this machine does
if [ "$host" = 0.0.0.0 ]; then shown=$(hostname -f 2>/dev/null || hostname) asked=127.0.0.1; fi
python=.venv/bin/python; [ -x "$python" ] || python=$(command -v python)
for place in /usr/lib/postgresql/*/bin; do [ -d "$place" ] && PATH=$PATH:$place; done

die() { echo "mlflow server: $*" >&2; exit 1; }
as_database() { # PostgreSQL refuses to run as root
  if [ "$(id -u)" = 0 ]; then (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); else "$@"; fi
}
ours() { [ -s "$home/mlflow.pid" ] && tr '\0' ' ' <"/proc/$(cat "$home/mlflow.pid")/cmdline" 2>/dev/null | grep -q "mlflow server"; }
database() { as_database pg_ctl -D "$home/data" "$@"; }
address() { sed -nE 's/.*MLFLOW_TRACKING_URI=([^ ]*).*/\1/p' "$home/credentials"; }
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
export MLFLOW_TRACKING_USERNAME=zerodr MLFLOW_TRACKING_PASSWORD=$password
WORDS
  )
}

tell_address() { # in the credentials, at each start: host and port may be others than last time
  (umask 077
    { sed -E 's/MLFLOW_TRACKING_URI=[^ ]*//; /^export *$/d' "$home/credentials"; echo "export MLFLOW_TRACKING_URI=$1"; } >"$home/.credentials"
    mv "$home/.credentials" "$home/credentials")
}

start() {
  ours && { echo "already running: $(address)"; return 0; }
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
  local names="localhost 127.0.0.1 $shown" allowed # Host headers that MLflow answers to
  if [ "$host" = 0.0.0.0 ]; then names="$names $(hostname) $(hostname -I 2>/dev/null)"; fi
  allowed=$(printf "%s:$port," $names)
  MLFLOW_AUTH_CONFIG_PATH=$home/auth.ini MLFLOW_DISABLE_TELEMETRY=true setsid "$python" -m mlflow server --app-name basic-auth \
    --host "$host" --port "$port" --allowed-hosts "${MLFLOW_SERVER_ALLOWED_HOSTS:-${allowed%,}}" --workers 1 --artifacts-destination "$home/artifacts" </dev/null >>"$home/mlflow.log" 2>&1 &
  echo $! >"$home/mlflow.pid"
  for _ in $(seq 1 "${MLFLOW_SERVER_PATIENCE_S:-180}"); do
    "$python" -c "import urllib.request as u; u.urlopen('http://$asked:$port/health', timeout=2)" 2>/dev/null && {
      tell_address "http://$shown:$port"
      echo "http://$shown:$port; address, user and password: source $home/credentials"; return 0; }
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
  status) ours && database status >/dev/null && address || { echo "not running"; exit 1; } ;;
  *) sed -n '2,10p' "$0"; exit 2 ;;
esac
