"""`sluice erase`: makes requests, carries them out, and proves them."""

import typer

from sluice.cli.erasure import certificates, making_requests, request_states

erase = typer.Typer(help="Erase people: make requests, carry them out, see their state.", no_args_is_help=True)
erase.command()(making_requests.request)
erase.command("import")(making_requests.import_requests)
erase.command("list")(request_states.list_requests)
erase.command("status")(request_states.status_of_requests)
erase.command()(making_requests.lift)
erase.command()(making_requests.withdraw)
erase.command()(making_requests.run)
erase.command()(making_requests.approve)
erase.command()(certificates.certificate)
erase.command()(certificates.verify)
erase.command()(certificates.public_key)
erase.command()(certificates.scan)
