"""A parameter server: keeps its share of the parameters, and adds the gradients of the trainers to it."""

import os
import socketserver
import struct
import threading

import numpy
from modules import layout

RATE = 0.5


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    shard = layout.shards(len(layout.servers()))[int(os.environ["PADDLE_INIT_PSERVER_ID"])]
    lock = threading.Lock()


class Trainer(socketserver.StreamRequestHandler):
    """A trainer sends the length of a gradient and the gradient, and gets the new parameters."""

    def handle(self):
        while head := self.rfile.read(8):
            (size,) = struct.unpack("!q", head)
            gradient = numpy.frombuffer(self.rfile.read(size))
            with self.server.lock:
                if size:
                    self.server.shard -= RATE * gradient
                answer = self.server.shard.tobytes()
            self.wfile.write(answer)


host, port = layout.servers()[int(os.environ["PADDLE_INIT_PSERVER_ID"])]
with Server((host, port), Trainer) as server:
    print("serving", server.shard.size, "parameters", flush=True)
    server.serve_forever()
