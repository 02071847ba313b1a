"""An SMTP server that answers by recipient: ok@ 250, temp@ 451, bad@ 550, late@ 451 and worse@ 554 after DATA,
hang@ never, drop@ closes the line. Prints its port, then everything it took, as JSON lines.

Arguments: --auth USER:PASSWORD, --cert FILE (key and certificate) with --starttls or --smtps.
"""

import argparse
import asyncio
import json
import logging
import ssl
import sys
import warnings

try:
    from aiosmtpd.smtp import SMTP, AuthResult
except ImportError:
    sys.exit(f"{sys.executable} has no aiosmtpd: run `{sys.executable} -m pip install aiosmtpd`,"
             " or name a Python that has it in TIDINGS_TEST_PYTHON")

# Handshakes and logins that fail are what some tests are about.
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def say(**line):
    print(json.dumps(line), flush=True)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        who = address.split("@")[0]
        tls = server.transport.get_extra_info("ssl_object") is not None
        say(rcpt=address, tls=tls, login=session.auth_data is not None)
        if who == "temp":
            return "451 4.3.0 try again later"
        if who == "bad":
            return "550 5.1.1 no such user"
        if who == "hang":
            await asyncio.sleep(3600)
        if who == "drop":
            server.transport.abort()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        who = envelope.rcpt_tos[0].split("@")[0]
        if who == "late":
            return "451 4.3.0 disk full"
        if who == "worse":
            return "554 5.6.0 looks like spam"
        say(sender=envelope.mail_from, to=envelope.rcpt_tos, data=envelope.content.decode("utf-8", "replace"))
        return "250 OK queued"


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--auth")
    parser.add_argument("--cert")
    parser.add_argument("--starttls", action="store_true")
    parser.add_argument("--smtps", action="store_true")
    options = parser.parse_args()
    context = None
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.cert)

    def check(server, session, envelope, mechanism, data):
        given = f"{data.login.decode()}:{data.password.decode()}"
        good = given == options.auth
        return AuthResult(success=good, handled=good, auth_data=data if good else None)

    def protocol():
        settings = {"tls_context": context, "require_starttls": True} if options.starttls else {}
        if options.auth:
            settings |= {"authenticator": check, "auth_required": True, "auth_require_tls": False}
        return SMTP(Handler(), hostname="sink", enable_SMTPUTF8=not options.ascii, **settings)

    implicit = context if options.smtps else None
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=implicit)
    say(port=server.sockets[0].getsockname()[1])
    # The test holds the other end of our input; when it dies, so do we.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.exit(0)


asyncio.run(main())
