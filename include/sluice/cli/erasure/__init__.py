"""`sluice erase`: requests, from the first to the proof."""

import typer

from sluice.cli.erasure import asking, carrying_out, certificates, standing

erase = typer.Typer(help="Erase people: make requests, carry them out, see their state.", no_args_is_help=True)
erase.command()(asking.request)
erase.command("import")(asking.import_requests)
erase.command("list")(standing.list_requests)
erase.command("status")(standing.status_of_requests)
erase.command()(asking.lift)
erase.command()(asking.withdraw)
erase.command()(carrying_out.run)
erase.command()(carrying_out.approve)
erase.command()(certificates.certificate)
erase.command()(certificates.verify)
erase.command()(certificates.public_key)
erase.command()(certificates.scan)
