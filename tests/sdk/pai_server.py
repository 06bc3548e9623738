"""Small real HTTP servers that answer like OpenPAI 0.14, 0.18 and 1.8, as far as adding a cluster needs."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "alice", "s3cr$t&x pässword"


def jwt(user: str, **claims: object) -> str:
    """A token whose payload can be read and whose signature is not valid."""
    parts = ({"alg": "HS256", "typ": "JWT"}, {"username": user, **claims})
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        + ".x"
    )


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Ignore it: clients that abort the TLS handshake are part of the tests."""


class PaiServer:
    """One server with one user; ``seen`` are the requests it got: method, path, Authorization, body.

    ``heard`` are the same requests with all of their headers, as one text each.
    """

    def __init__(
        self, generation="1.8", version="v1.8.1", oidc=False, prefix="/rest-server", redirect="", tls=None
    ):
        self.generation, self.version, self.oidc = generation, version, oidc
        self.prefix, self.redirect = prefix, redirect
        self.token = jwt(USER, application=False, exp=4102444800)
        self.password = PASSWORD
        self.seen: list[tuple[str, str, str, str]] = []
        self.heard: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size).decode()
                auth = self.headers.get("Authorization", "")
                server.seen.append((self.command, self.path, auth, body))
                server.heard.append(f"{self.requestline}\n{self.headers}\n{body}")
                if server.redirect:
                    self.send_response(307)
                    self.send_header("Location", server.redirect + self.path)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                status, content = server.route(self.command, urlsplit(self.path).path, auth, body)
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header(
                    "Content-Type", "text/html" if isinstance(content, str) else "application/json"
                )
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer

        self.http = QuietServer(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self.http.socket = context.wrap_socket(
                self.http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.http.server_address[1]
        self.uri = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def route(self, method, path, auth, body):
        missing = (404, {"code": "NoApiError", "message": f"API {path} is not found."})
        if not path.startswith(self.prefix + "/api/"):
            return (404, "<html>Not Found</html>") if self.prefix else missing
        path = path.removeprefix(self.prefix).removeprefix("/api")
        open_routes = self.open_routes(body)
        if (method, path) in open_routes:
            return open_routes[method, path]
        guarded = self.guarded_routes()
        if (method, path) not in guarded:
            return missing
        if auth != f"Bearer {self.token}":
            return 401, {"code": "UnauthorizedUserError", "message": "Your token is invalid."}
        return guarded[method, path]

    def open_routes(self, body):
        way_in = "OIDC" if self.oidc else "basic"
        routes = {
            ("GET", "/v1/authn/info"): (
                200,
                {"authn_type": way_in, "loginURI": "/", "loginURIMethod": "post"},
            )
        }
        if not self.oidc:
            routes["POST", "/v1/token"] = self.login(body)
        info = {
            "name": "PAI RESTful API",
            "version": self.version,
            "launcherType": "k8s",
            "authnMethod": way_in,
        }
        if self.generation == "0.14":
            routes["GET", "/v1"] = 200, "<pre>PAI RESTful API</pre>"
            routes["GET", "/v1/virtual-clusters"] = 200, VIRTUAL_CLUSTERS_YARN
            return routes
        routes["GET", "/v1"] = 200, info
        if self.generation != "0.16":
            routes["GET", "/v2/info"] = 200, info
        if self.generation in ("0.16", "0.18"):
            routes["GET", "/v1/virtual-clusters"] = 200, VIRTUAL_CLUSTERS
        return routes

    def guarded_routes(self):
        record = {"username": USER, "grouplist": [], "email": "", "extension": {}, "admin": False}
        user = 200, {**record, "virtualCluster": ["default", "vc1"]}
        routes = {("GET", f"/v1/user/{USER}"): user}
        if self.generation != "0.14":
            routes["GET", "/v2/jobs"] = 200, []
            routes["GET", "/v2/virtual-clusters"] = 200, VIRTUAL_CLUSTERS
            routes["GET", "/v2/storages"] = (
                200,
                {"storages": [{"name": "nfs", "share": True, "volumeName": "v"}]},
            )
        return routes

    def login(self, body):
        form = {key: values[0] for key, values in parse_qs(body).items()}
        if form.get("username") != USER:
            return 400, {"code": "NoUserError", "message": "User undefined is not found."}
        if form.get("password") != self.password:
            return 400, {"code": "IncorrectPasswordError", "message": "Password is incorrect."}
        return 200, {"user": USER, "token": self.token, "admin": False}


def _virtual_cluster(gpus, cpus, **names):
    used = {"memory": 1024, names["cpu"]: 2, names["gpu"]: 1}
    total = {"memory": 65536, names["cpu"]: cpus, names["gpu"]: gpus}
    return {"capacity": 100, "usedCapacity": 10, "resourcesUsed": used, "resourcesTotal": total}


VIRTUAL_CLUSTERS = {
    name: _virtual_cluster(8, 32, cpu="cpu", gpu="gpu") for name in ("default", "vc1", "other")
}
VIRTUAL_CLUSTERS_YARN = {"default": _virtual_cluster(4, 16, cpu="vCores", gpu="GPUs")}
