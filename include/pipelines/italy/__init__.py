"""Real public reports: COVID-19 figures of the Italian regions, as they were delivered from 2020-03-07 on.

Source: Presidenza del Consiglio dei Ministri, Dipartimento della Protezione Civile,
https://github.com/pcm-dpc/COVID-19, folder dati-regioni. Licence: Creative Commons Attribution 4.0
International. Figures per region, no persons.
"""
