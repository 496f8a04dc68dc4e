"""`sluice erase`: makes requests, carries them out, and proves them."""

import typer

from sluice.cli.erasure import certificates, making_requests, request_states

erase = typer.Typer(help="Erase people: make requests, carry them out, see their state.", no_args_is_help=True)
erase.command("request")(making_requests.request_erasure)
erase.command("import")(making_requests.import_requests)
erase.command("list")(request_states.list_requests)
erase.command("status")(request_states.status_of_requests)
erase.command("lift")(making_requests.lift_suppression)
erase.command("withdraw")(making_requests.withdraw_request)
erase.command("run")(making_requests.run_erasures)
erase.command("approve")(making_requests.approve_requests)
erase.command("certificate")(certificates.show_certificate)
erase.command("verify")(certificates.verify_certificate)
erase.command()(certificates.public_key)
erase.command("scan")(certificates.scan_for_people)
