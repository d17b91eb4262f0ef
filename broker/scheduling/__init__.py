"""How requests share one event loop: deliveries in rounds, long work in threads, a limit on requests that wait."""

from broker.scheduling import deliveries
from broker.scheduling.deliveries import READING, ROUND, DeliveryScheduler
from broker.scheduling.heavy import Heavy
from broker.scheduling.parking import Parking, Slots

__all__ = ["READING", "ROUND", "DeliveryScheduler", "Heavy", "Parking", "Slots", "deliveries"]
