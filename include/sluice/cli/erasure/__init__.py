"""`sluice erase`: requests, from the first to the proof."""

from sluice.cli.erasure import certificates, people

erase = people.erase
erase.command()(people.run)
erase.command()(people.approve)
erase.command()(certificates.certificate)
erase.command()(certificates.verify)
erase.command()(certificates.public_key)
erase.command()(certificates.scan)
