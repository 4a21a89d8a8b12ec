"""A grammar of short stories about a hero and a thing.

A story has a hero, a place or thing, a trouble, a helper, a try that fails, one that works, and an
ending. Facts about the hero come from HEROES, the trouble and its cure from THINGS, and everything
around them from lists with many alternatives. Which alternative is the usual one depends on the
hero for some sentences and on the thing for the others, so two stories about different pairs seldom
share a sentence, also when a model tells them greedily.

Slots: {N} name, {he} {him} {his} {He} {His} pronouns, {h} the hero as a noun, {t} the thing with
"the", {H} {T} the same at the start of a sentence, {W} the helper's name, {w} the helper as a noun,
{aw} {Aw} the same with "a".
"""

import functools
import hashlib
import random
from dataclasses import dataclass

PRONOUNS = {
    "he": dict(he="he", him="him", his="his", He="He", His="His"),
    "she": dict(he="she", him="her", his="her", He="She", His="Her"),
    "it": dict(he="it", him="it", his="its", He="It", His="Its"),
}

# noun: (names with pronouns, what kind of hero, habit, first skill, second skill)
HEROES = {
    "robot": (["Bolt/he", "Tilda/she", "Rusty/he"], "small robot with one squeaky wheel", "Every morning {N} oiled {his} joints and counted the clouds.", "{N} switched on {his} lamp and measured every corner twice.", "With steady metal fingers {N} tightened one screw after another."),
    "cat": (["Minka/she", "Tiger/he", "Pepper/she"], "gray cat with white paws", "Most days {N} slept on a warm roof and dreamed of fish.", "{N} slipped through a gap where nobody else would fit.", "On silent paws {N} climbed to the very top."),
    "dog": (["Rufus/he", "Bella/she", "Biscuit/he"], "brown dog with floppy ears", "{N} greeted everybody in the street by name, or at least by smell.", "{N} put {his} nose to the ground and followed the trail.", "With both front paws {N} dug until the earth flew."),
    "dragon": (["Ember/she", "Fumo/he", "Scorch/he"], "little dragon who was afraid of the dark", "Before breakfast {N} toasted bread for the whole valley.", "{N} breathed a tiny flame and looked around in its light.", "{N} spread {his} wings and rose above the roofs."),
    "fox": (["Vixy/she", "Russet/he", "Finn/he"], "clever fox with a torn ear", "{N} collected riddles the way others collect stamps.", "{N} thought of three plans and threw away the first two.", "Quick as a spark {N} darted from shadow to shadow."),
    "pirate": (["Captain Marla/she", "Captain Brick/he", "Old Sal/she"], "pirate who had never stolen anything", "{N} sang to the waves and polished a wooden spoon instead of a sword.", "{N} tied the best knot that the seven seas had ever seen.", "{N} unrolled an old chart and drew a new line on it."),
    "princess": (["Princess Ida/she", "Princess Lune/she", "Princess Rosa/she"], "princess who liked boots better than crowns", "At court {N} asked so many questions that the teachers hid.", "{N} rolled up {his} silk sleeves and went straight to work.", "{N} used {his} crown as a hook, and it worked well."),
    "wizard": (["Old Berto/he", "Madame Quill/she", "Osric/he"], "forgetful wizard with a pointed hat", "{N} often turned the tea into soup by mistake.", "{N} whispered a spell, and for once it was the right one.", "{N} searched seven pockets before the wand turned up."),
    "owl": (["Hoola/she", "Professor Hark/he", "Twill/she"], "wise owl who could not sleep by day", "{N} read the newspaper to the mice every evening.", "{N} turned {his} head all the way around and saw what others had missed.", "Without a sound {N} glided over the fields."),
    "rabbit": (["Clover/she", "Hopkin/he", "Thistle/she"], "shy rabbit with very long ears", "{N} grew carrots in rows as straight as rulers.", "{N} listened, for those long ears heard even a falling leaf.", "{N} hopped ahead faster than the wind could follow."),
    "bear": (["Bruno/he", "Ursa/she", "Honey/she"], "big bear with a gentle voice", "{N} baked honey cake for anyone who looked cold.", "{N} leaned a broad shoulder against it and pushed.", "{N} lifted the heavy load as if it were a basket of berries."),
    "mouse": (["Pip/he", "Crumb/she", "Nibs/he"], "tiny mouse with a large imagination", "{N} lived in a teapot and slept under a postage stamp.", "{N} crept inside, past wheels and wires, right to the heart of it.", "{N} gnawed at the knot until it fell apart."),
    "knight": (["Sir Oswin/he", "Dame Petra/she", "Sir Tumble/he"], "young knight whose armor was too big", "{N} practiced bowing in front of a barn door.", "{N} used the shield as a shovel and the helmet as a bucket.", "{N} stood firm, though {his} knees were rattling."),
    "baker": (["Anselm/he", "Greta/she", "Dora/she"], "cheerful baker with flour in {his} hair", "Long before dawn {N} was kneading dough and humming.", "{N} mixed a paste of flour and water that was stronger than glue.", "{N} rolled the thing flat, as if it were dough."),
    "fisherman": (["Joris/he", "Old Tam/he", "Enno/he"], "patient fisherman with a green cap", "{N} could sit still for so long that birds rested on {his} hat.", "{N} threw the line once, twice, and on the third throw it held.", "{N} mended the net with quick and careful hands."),
    "astronaut": (["Nova/she", "Commander Lee/he", "Stella/she"], "astronaut on holiday", "{N} still counted backwards from ten before getting out of bed.", "{N} went through a long checklist and smiled at the last line.", "{N} floated a rope across, just as it is done in space."),
    "painter": (["Colette/she", "Umberto/he", "Isa/she"], "painter who saw colors in every sound", "{N} owned forty brushes and only one good chair.", "{N} made a quick sketch, and in the sketch the answer was plain to see.", "{N} mixed a paint that shone even in the dark."),
    "gardener": (["Fern/she", "Mr. Moss/he", "Linus/he"], "quiet gardener with muddy knees", "{N} told the seeds a joke each spring so that they would come up smiling.", "{N} dug carefully around the roots, one spoon at a time.", "{N} tied everything up with a length of green string."),
    "penguin": (["Waddle/he", "Pingo/he", "Flake/she"], "young penguin far from home", "{N} kept a snowball in a box for bad days.", "{N} dropped on {his} belly and slid down the slope.", "{N} dived into the cold water and came up with good news."),
    "turtle": (["Shelby/she", "Tortus/he", "Mossback/he"], "very old turtle", "{N} had never been late, because {he} always left the day before.", "{N} went on, slowly and without a single stop.", "{N} pulled in {his} head and thought for a long, quiet while."),
    "frog": (["Ribbert/he", "Lily/she", "Croaky/he"], "green frog with a deep voice", "{N} conducted the evening choir from a stone in the pond.", "{N} took one huge leap and landed exactly on the spot.", "{N} called so loudly that the whole valley heard."),
    "elephant": (["Tumba/she", "Ollie/he", "Mona/she"], "small elephant with a perfect memory", "{N} remembered every birthday within a hundred miles.", "{N} reached up with {his} trunk and pulled.", "{N} drew up water and sprayed it in a wide arc."),
    "ghost": (["Boo/it", "Lady Mist/she", "Whisper/it"], "polite ghost who always knocked", "{N} dusted the attic at midnight and never rattled a chain.", "{N} drifted straight through the wall to have a look.", "{N} glowed softly, so that everyone could see the way."),
    "witch": (["Griselda/she", "Hazel/she", "Nettle/she"], "kind witch with a patched broom", "{N} sold rain on Mondays and sunshine on Sundays.", "{N} stirred the kettle three times to the left.", "{N} swung onto the broom and circled high above."),
    "sailor": (["Hanno/he", "Brida/she", "Tobias/he"], "sailor with a parrot and no ship", "{N} knew a song for every kind of wind.", "{N} looked at the stars and knew at once where to go.", "{N} hauled the rope, hand over hand."),
    "inventor": (["Edda/she", "Doctor Cog/he", "Milo/he"], "inventor whose pockets were full of springs", "{N} had built a machine that buttered toast on both sides.", "{N} bent a spoon into a lever and pressed down.", "{N} joined two wires, and there was a bright blue spark."),
    "detective": (["Miss Clue/she", "Inspector Dove/he", "Agatha/she"], "detective with a round magnifying glass", "{N} always noticed which foot people put first.", "{N} knelt down and found a trace as thin as a hair.", "{N} wrote everything into a notebook and drew arrows between the words."),
    "farmer": (["Jonas/he", "Wilma/she", "Barley/he"], "farmer with a very slow tractor", "{N} wished the cows good night one by one.", "{N} fetched a ladder, a rope and a good deal of patience.", "{N} hitched up the tractor and pulled, inch by inch."),
    "squirrel": (["Hazelnut/she", "Skitter/he", "Acorn/he"], "restless squirrel with a red tail", "{N} hid nuts so well that whole forests grew from them.", "{N} ran up one side and down the other.", "{N} leaped across the gap with a rope between {his} teeth."),
    "parrot": (["Kiko/he", "Mango/she", "Jabber/he"], "parrot who spoke nine languages", "{N} told the same joke in each of them, and laughed nine times.", "{N} flew ahead and called out what lay behind the corner.", "{N} copied the sound so well that the echo answered."),
    "giraffe": (["Stilts/he", "Amara/she", "Longo/he"], "giraffe with a blue scarf", "{N} said good morning to people on the third floor.", "{N} stretched {his} neck and peered over the edge.", "{N} bent down low and let the others climb up."),
    "girl": (["Lena/she", "Amina/she", "Juno/she"], "girl with a yellow raincoat", "{N} kept a list of questions under {his} pillow.", "{N} took a piece of chalk and marked the way.", "{N} closed {his} eyes, listened, and pointed to the left."),
    "boy": (["Emil/he", "Samir/he", "Theo/he"], "boy with a crooked kite", "{N} could whistle two tunes at the same time.", "{N} pulled a ball of string from {his} pocket, and it was just long enough.", "{N} built a small model of it out of matches."),
    "musician": (["Aria/she", "Django/he", "Clara/she"], "musician with an old violin", "{N} played for the pigeons when nobody else had time.", "{N} struck one clear note and waited for what would answer.", "{N} took a string from the violin, and it was strong enough."),
    "king": (["King Albin/he", "King Rolo/he", "King Otto/he"], "king who was tired of sitting", "{N} gave {his} golden chair away and bought a bench.", "{N} asked for advice, which a king should do more often.", "{N} took off the heavy cloak and crawled underneath."),
    "goat": (["Heidi/she", "Bramble/he", "Capra/she"], "stubborn goat with crooked horns", "{N} ate the washing off three different lines.", "{N} lowered {his} horns and gave it one good knock.", "{N} climbed where even the brave would turn back."),
    "bee": (["Zuzu/she", "Buzzy/he", "Melli/she"], "round bee with a torn wing", "{N} greeted each flower before drinking from it.", "{N} danced a figure eight to show the others the way.", "{N} patched the crack with a little wax."),
    "snail": (["Slimon/he", "Shelly/she", "Dawdle/he"], "thoughtful snail", "{N} carried a very small library in {his} house.", "{N} crossed the wall in one long night and left a silver line behind.", "{N} saw up close what the quick ones had run past."),
    "teacher": (["Mrs. Linden/she", "Mr. Abel/he", "Miss Pepin/she"], "teacher with ink on every finger", "{N} began each day with a riddle and a window wide open.", "{N} drew the whole thing on a board and asked what was missing.", "{N} explained it once more, slowly, and suddenly it made sense."),
    "clown": (["Poppo/he", "Lola/she", "Bim/he"], "clown who had run out of jokes", "{N} practiced falling down until it looked like flying.", "{N} stacked three chairs and balanced on the top one.", "{N} pulled a long, colorful scarf out of one sleeve and used it as a rope."),
}

# noun: (where it stands, two plots of (trouble, discovery and cure, result))
THINGS = {
    "lighthouse": ("high on the cliff above the bay", [
        ("The great lamp of the lighthouse had gone dark, and three ships were out in the fog.", "Behind the lens {N} found a nest of swallows, moved it gently to the window, and cleaned the glass.", "A broad white beam swept over the water, and one ship after another turned toward the harbor."),
        ("Someone had stolen the mirror of the lighthouse, so its light no longer reached the sea.", "{N} hung up every polished pan from the kitchen until they made one great shining mirror.", "Far out on the waves a horn answered three times, which means thank you.")]),
    "garden": ("behind a low stone wall", [
        ("All the flowers of the garden had closed and would not open again.", "{N} discovered that the little stream was blocked by a fallen branch and cleared the way.", "By evening the water was running, and the first tulip yawned and opened."),
        ("A tall hedge had grown around the garden in a single night and nobody could get in.", "{N} asked the hedge politely, and cut a small round door where it leaned aside.", "Inside, the roses were waiting with all their best colors.")]),
    "castle": ("on a hill with too many stairs", [
        ("The gate of the castle was stuck, and the whole court had to live in the stable.", "{N} noticed that one rusty hinge was upside down, and turned it around.", "The gate swung open with a sigh, and trumpets were blown until everyone laughed."),
        ("In the castle all the clocks were silent, and nobody knew when to eat.", "{N} found the main wheel lying under a carpet and put it back in its place.", "At noon forty bells rang together, and soup was served at last.")]),
    "forest": ("where the road comes to an end", [
        ("The paths of the forest had begun to move, and all who entered came out where they had gone in.", "{N} tied red ribbons to the oldest trees, and the paths were ashamed and lay still.", "From that day every path led to where it said it would."),
        ("The forest had lost its echo, and the birds no longer knew how they sounded.", "{N} found the echo asleep in a hollow trunk and woke it with a whisper.", "Soon a hundred songs were ringing back from the hills.")]),
    "train": ("at a station with a single lamp", [
        ("The night train would not start, and its passengers were getting cold.", "{N} crawled beneath the engine and found a scarf wrapped around the axle.", "With a long whistle the train rolled off, and warm tea was handed from seat to seat."),
        ("The train had missed a switch and stood on rails that led nowhere.", "{N} pulled the old lever back, which nobody had dared to touch for years.", "The rails clicked, the lights turned green, and everyone waved from the windows.")]),
    "clock": ("in the tower over the market", [
        ("The town clock ran backwards, and people grew hungry before breakfast.", "{N} discovered two gears that had changed places out of boredom, and swapped them again.", "The hands stopped, trembled, and began to walk the right way around."),
        ("The big clock had swallowed the hour between three and four.", "{N} reached deep into the case and pulled out the lost hour, dusty but whole.", "That afternoon was one hour longer, and all the children played outside.")]),
    "island": ("a day's journey out at sea", [
        ("The island had come loose and was drifting away with the wind.", "{N} made an anchor from an old bell and lowered it between two rocks.", "With a soft bump the island came to rest, closer to home than before."),
        ("On the island the only spring had run dry.", "{N} dug where the ants were marching in a line, and there the ground was wet.", "Clear water bubbled up, and even the crabs danced around it.")]),
    "bridge": ("over a wild green river", [
        ("The storm had broken the bridge in two, and friends were left on both sides.", "{N} threw a line across, then a rope, then a row of planks.", "By sunset the first person walked over, with shaking legs and a loud cheer."),
        ("A troll sat on the bridge and would not let anybody pass without a story.", "{N} told a tale so long that the troll fell asleep with a smile.", "Everybody tiptoed across, and later they brought the troll a book.")]),
    "moon": ("large and round above the hills", [
        ("One night the moon did not rise, and the moths had nowhere to go.", "{N} found it tangled in the top of a pine tree and set it free.", "It floated up like a silver balloon, and the night had its face again."),
        ("The moon had lost its shine and looked like an old plate.", "{N} polished one half with a soft cloth, and left the rest for next month.", "That is why the moon is sometimes half and sometimes full.")]),
    "library": ("in a narrow house with a blue door", [
        ("In the library all the words had slipped from the pages and lay on the floor in a heap.", "{N} sorted them by length and read them aloud until they remembered their places.", "One by one they climbed back, and every book closed with a happy sigh."),
        ("A single book was missing from the library, and the shelf cried at night.", "{N} looked under the bed of the librarian, and there it lay, still open at page nine.", "It was put back, and everybody wanted to know how it ended.")]),
    "mountain": ("so high that its top was always white", [
        ("The mountain had begun to snore, and stones were rolling down into the village.", "{N} tickled it under the summit with a long feather.", "The mountain sneezed once, turned over, and slept quietly from then on."),
        ("A thick cloud had settled on the mountain and would not leave.", "{N} learned that the cloud was only lonely, and sat with it until morning.", "It rose into the blue and came back every Sunday, but never stayed too long.")]),
    "market": ("in the square by the fountain", [
        ("At the market every scale showed the wrong weight, and people were shouting.", "{N} discovered a family of beetles in the weights and led them out with a crumb of cake.", "Soon a pound was a pound again, and the sellers shook hands."),
        ("The market was empty, because a flock of geese had blocked the road.", "{N} walked in front of the geese with a trail of corn, all the way to the pond.", "Within an hour there were apples, cheese and laughter on every table.")]),
    "river": ("that wound through the valley like a ribbon", [
        ("The river had stopped flowing, and its fish stood still and wondered.", "{N} walked up to the source and found a giant who used it as a pillow.", "The giant moved over, and the river laughed its way down again."),
        ("After the rain the river was rising toward the houses.", "{N} opened the old canal and led half of the water to the dry fields.", "The houses stayed dry, and by summer the fields were full of wheat.")]),
    "balloon": ("tied to a fence in the meadow", [
        ("The great red balloon had a hole, and the festival was only an hour away.", "{N} covered the hole with a patch made from an old umbrella.", "It rose without a sound, and the whole town grew small beneath it."),
        ("The balloon had flown away with a basket full of letters.", "{N} followed its shadow over three hills and caught the rope at the last moment.", "Every letter arrived, only a little late and smelling of clouds.")]),
    "bakery": ("on the corner of a sleepy street", [
        ("In the bakery the oven had gone cold, and a wedding cake was waiting.", "{N} found that the chimney was blocked by a lost hat and pulled it out.", "The fire roared, the cake rose, and the bride cried with joy."),
        ("Each night somebody nibbled the rolls in the bakery.", "{N} hid behind a sack of flour and met a family of hungry sparrows.", "Since then a small plate of crumbs stands outside, and the rolls stay whole.")]),
    "school": ("with a red roof and a crooked bell", [
        ("The bell of the school had vanished, and lessons went on and on.", "{N} heard a faint ringing in the well and fished the bell out.", "It rang so brightly that even the teachers ran out to play."),
        ("All the chalk of the school wrote only the word no.", "{N} talked to the chalk kindly and asked what it wished to draw.", "It drew a sun over the whole board, and after that it wrote anything.")]),
    "ship": ("in the farthest corner of the harbor", [
        ("The old ship was leaking, and the tide was coming in.", "{N} found seven holes and closed them with cork, wax and one good sock.", "When the tide came, the ship lifted its nose and floated like a duck."),
        ("The ship had no wind, and its sails hung down like wet towels.", "{N} asked all the people on the shore to blow at the same time.", "The sails filled, and the ship sailed off amid cheering.")]),
    "snowman": ("in the middle of a white field", [
        ("The snowman had begun to melt, although he wished to see the spring.", "{N} built a little house of ice around him, with a window to the south.", "So he saw the first crocus of the year, and said it was worth the wait."),
        ("The snowman had lost his nose and could not smell the winter.", "{N} tried a stone and a pine cone, and in the end a carrot was just right.", "The snowman breathed in deeply and whispered that it smelled of stars.")]),
    "treasure": ("buried beneath an oak, as people said", [
        ("The map to the treasure was torn, and its better half was gone.", "{N} noticed that the pattern of the tear was the coast itself, and walked along it.", "The chest held no gold at all, but a hundred letters between two old friends."),
        ("Everyone was quarreling about the treasure before it was even found.", "{N} dug it up at night and opened it in front of them all.", "It was full of seeds, and by autumn there was enough for every table.")]),
    "star": ("that had fallen behind the barn", [
        ("A small star had dropped out of the sky and was growing pale.", "{N} wrapped it in a blanket, carried it up the hill, and threw it as high as possible.", "It caught hold of the night and twinkled twice, which is how stars say thank you."),
        ("The brightest star refused to shine, because nobody had given it a name.", "{N} asked what it would like, and they chose a name that only the two of them know.", "Since then it is the first to appear every evening.")]),
    "piano": ("in a dusty hall with tall windows", [
        ("The old piano played only sad songs, whatever one wished to hear.", "{N} lifted the lid, found a forgotten tear on the lowest string and wiped it off.", "The next song was so merry that the chairs began to dance."),
        ("The piano had lost its highest note on the day of the concert.", "{N} discovered the note in the garden, where a blackbird had borrowed it.", "The blackbird came along and sang it in the right place each time.")]),
    "well": ("at the crossing of two dusty roads", [
        ("The wishing well was offended and granted every wish upside down.", "{N} lowered a bucket full of flowers and said that all were sorry.", "The water gurgled with pleasure, and the wishes came out straight again."),
        ("A voice was calling from the bottom of the well.", "{N} climbed down on a chain and met a frog who had lost his glasses.", "They came up together, and the frog saw the sky clearly for the first time.")]),
    "kite": ("hanging in the tallest poplar", [
        ("The paper kite was caught in a tree, and a storm was coming.", "{N} waited for a gap in the wind and shook the branch once, in just the right way.", "The kite dropped into open arms as the first drops fell."),
        ("The kite was afraid of heights and stayed near the ground.", "{N} let the string out a little more each day and never let go of it.", "On the seventh day it danced above the church and did not want to come down.")]),
    "windmill": ("on the windy side of the hill", [
        ("The windmill stood still, although the wind was blowing hard.", "{N} found a sleeping bat between the cogs and carried it to the loft.", "The sails turned, flour poured out, and there was bread for the whole village."),
        ("The windmill spun so fast that it was about to fly away.", "{N} threw a sack of feathers between the wheels to slow them down.", "It calmed itself, and for days it was snowing feathers.")]),
    "cave": ("behind a curtain of ivy", [
        ("Strange lights had been flickering in the cave, and nobody dared to go near.", "{N} walked in and met a hundred glowworms who were rehearsing a play.", "The play was shown on Friday, and every seat on the moss was taken."),
        ("The cave repeated every secret that was told in it.", "{N} told it so many nice things that it forgot all the others.", "Whoever felt low went there afterwards, to hear something kind.")]),
    "umbrella": ("forgotten on a park bench", [
        ("The green umbrella opened only when the sun was shining.", "{N} discovered that it was afraid of thunder and taught it to count after each flash.", "In the next storm it opened wide and kept seven people dry."),
        ("A gust had carried off the mayor's umbrella, and a parade was about to begin.", "{N} climbed to the weathercock, where it was hanging upside down, full of rain.", "The parade went on, and the mayor bowed so deeply that everyone clapped.")]),
    "letter": ("in a bottle covered with shells", [
        ("The letter was so wet that nobody could read to whom it belonged.", "{N} dried it over a candle, and between the lines an address appeared.", "The old woman who received it had been waiting for forty years."),
        ("The letter had no stamp and had been waiting in the post office since winter.", "{N} carried it over the pass without being asked.", "It said only, please come for dinner, and there was a chair for {N} as well.")]),
    "volcano": ("that grumbled behind the village", [
        ("The volcano had a cold and coughed ashes over the washing.", "{N} brewed a kettle of herb tea as large as a pond and poured it in.", "It hiccuped one smoke ring and was quiet, and the sheets were white again."),
        ("The volcano wanted to celebrate its birthday, and everyone was afraid of the candles.", "{N} proposed a party with lanterns instead of lava.", "The volcano glowed a little, from joy, and nobody had to run.")]),
    "circus": ("on the meadow outside the town", [
        ("The circus tent had collapsed an hour before the show.", "{N} raised it again on a pole made of nine brooms.", "The show began on time, and nobody saw that the roof was a bit crooked."),
        ("The circus had lost its lion, and the lion had lost the circus.", "{N} found him in the laundry, where it was warm and smelled of soap.", "He roared that evening as softly as a cat, and was loved for it.")]),
    "lantern": ("over the door of the last house", [
        ("The lantern went out each time somebody told a lie under it.", "{N} asked all neighbors to say one true thing, even if it was hard.", "It burned brighter than ever, and people looked at each other in a new way."),
        ("The lantern had lost its flame to a draft, and the night was long.", "{N} caught the spark of a falling star and set it upon the wick.", "A golden light fell over the road, and a lost traveler found the door.")]),
    "pond": ("between three willows", [
        ("The pond was frozen in the middle of June.", "{N} learned that a homesick snowflake was hiding in it and sent it north by the next cloud.", "The ice melted in a minute, and the ducks fell in with a splash."),
        ("The ducks had left the pond after a quarrel about the best corner.", "{N} rowed around until each of them had found that all corners were the same.", "They came back in a row, and the smallest one was allowed to lead.")]),
    "museum": ("on a boulevard lined with lamps", [
        ("In the museum the people in the paintings had walked off for a stroll.", "{N} placed a plate of fresh cookies in front of every frame.", "They returned one after another, though one duchess still has crumbs on her collar."),
        ("The oldest vase of the museum was cracked, and the opening was tomorrow.", "{N} filled the crack with gold instead of hiding it.", "The visitors said that it was the most beautiful piece of them all.")]),
    "desert": ("yellow and silent to the horizon", [
        ("In the desert the dunes had covered the only road.", "{N} waited for night, followed the coolest wind, and laid stones along it.", "When the sun rose, the caravan found a path that shone like a string of pearls."),
        ("A cloud had lost its way in the desert and was getting thin.", "{N} led it from one cool shadow to the next, until they reached the hills.", "There it rained for one whole minute, and the sand turned green.")]),
    "rainbow": ("half hidden behind the mill", [
        ("The rainbow had lost its green, and it looked like a broken fence.", "{N} gathered the greenest leaves and pressed out a single drop of color.", "The gap closed, and the meadow under it seemed to glow."),
        ("One end of the rainbow was stuck in a chimney.", "{N} loosened the bricks and pulled, and the colors came out a bit sooty.", "After the next rain it was clean, and the chimney has been striped ever since.")]),
    "spaceship": ("half buried in a cornfield", [
        ("The spaceship had no fuel left, and its tiny crew wanted to go home.", "{N} discovered that it ran on strawberry jam, and there was plenty of that.", "With a sweet smell it lifted off and drew a heart over the town."),
        ("A button of the spaceship was missing, the one for landing.", "{N} sewed on a button from an old coat, and it fitted perfectly.", "The ship landed as softly as a leaf, right between the pumpkins.")]),
    "door": ("that stood alone on a heath", [
        ("The door had no key, yet somebody behind it was knocking.", "{N} did the simplest thing, knocked back, and said please come in.", "It opened from the other side, and spring walked out of it."),
        ("Whoever went through the door forgot why.", "{N} wrote the reason on one hand before going in.", "On the other side {N} read it, laughed, and came back with the answer.")]),
    "cake": ("with seven layers and a cherry on top", [
        ("The cake for the jubilee had begun to lean to one side.", "{N} propped it up with wafers and evened the top with cream.", "Nobody noticed a thing, and every crumb was gone by midnight."),
        ("The cherry had vanished from the cake, and everybody blamed everybody.", "{N} followed the red spots to a cradle, where a baby was smiling.", "The whole party laughed, and a second cherry was found.")]),
    "mirror": ("in the hall of a quiet house", [
        ("The mirror showed everyone as they had been on the day before.", "{N} turned it to the window so that it could see the new morning.", "It blinked and showed the present, with all its freckles."),
        ("The mirror was sad, for it had never seen itself.", "{N} held a second mirror in front of it.", "It saw a corridor of light without an end and was speechless for a week.")]),
    "village": ("where the valley is at its deepest", [
        ("In the village nobody could sleep, because the crickets had learned to drum.", "{N} taught the crickets a lullaby and promised them a concert on Saturdays.", "That night there was deep, sweet silence behind every window."),
        ("The village had lost its name, for the sign had been blown away.", "{N} asked every person what home meant to them, and painted the shortest answer.", "Now the sign says Here, and everyone agrees with it.")]),
    "tower": ("taller than any tree in the land", [
        ("The tower had no stairs left, and somebody was waving from the top.", "{N} built steps out of books that nobody had finished reading.", "Down came an old poet, who finished reading all of them on the way."),
        ("The tower was leaning further every day.", "{N} learned that it only wanted to see the sea, and had the hill in front of it lowered.", "It straightened itself, content, and on clear days you can see it smile.")]),
    "wheelbarrow": ("with one wheel and no owner", [
        ("The wheelbarrow always rolled to the left, into the brook.", "{N} put a flat stone on its right side to balance it.", "It ran straight as a ruler and carried the whole harvest home."),
        ("The wheelbarrow wanted to be a racing car and refused all potatoes.", "{N} organized a race in which only wheelbarrows could start.", "It came in second, and it has carried potatoes proudly since that day.")]),
    "teapot": ("blue and chipped, on a high shelf", [
        ("The teapot sang all night and kept the household awake.", "{N} listened to the end of the song, which no one had ever done before.", "It bowed with its lid and from then on sang at teatime only."),
        ("The teapot had lost its lid, and all the steam flew away.", "{N} covered it with a walnut shell that was exactly the right size.", "The tea was hot again, with a faint taste of autumn.")]),
}

HELPERS = ["hedgehog", "sparrow", "badger", "old heron", "beetle", "shepherd", "postman", "blacksmith", "donkey", "magpie", "mole",
           "night watchman", "seagull", "hare", "lizard", "tailor", "weasel", "pelican", "chimney sweep", "grandmother", "otter", "crow",
           "miller", "bat"]
HELPER_NAMES = ["Quint", "Marlow", "Ottilie", "Fips", "Bertha", "Nils", "Tamsin", "Corvin", "Yola", "Hubert", "Zilla", "Perkin", "Elva",
                "Gustav", "Wren", "Matz", "Dorle", "Ambrose", "Kasimir", "Undine"]

# Each list is one sentence of the frame. The usual choice depends on hero or thing, as FRAME says.
OPENINGS = [
    "Once there was a {d} called {N}, who lived near {t} {p}.", "Not far from {t}, {p}, lived {N}, a {d}.",
    "{N} was a {d}. {His} home was close to {t} {p}.", "This is the story of {N}, a {d}, and of {t} {p}.",
    "Long ago, when winters were longer, a {d} named {N} came to {t} {p}.", "Everybody in the land knew {t} {p}. Hardly anybody knew {N}, a {d}.",
    "Have you heard of {N}? {He} was a {d} and lived beside {t} {p}.", "A {d} named {N} once settled down by {t} {p}.",
    "It began on a quiet day. {N}, a {d}, was looking at {t} {p}.", "In a land without maps there was {t} {p}, and there was {N}, a {d}.",
    "If you had walked past {t} {p}, you would have met {N}, a {d}.", "People still talk about {N}, a {d} from the house by {t} {p}.",
    "There once was {t}, {p}, and its only neighbor was {N}, a {d}.", "Nobody remembers when {N} came to {t} {p}. {He} was a {d}.",
]
TROUBLE_LEADS = [
    "Then, on a {y} {e}, something happened.", "But one {e} was not like the others.", "One {y} {e} there was bad news.", "Last autumn trouble came.",
    "All went well until a certain {y} {e}.", "On the first {e} of {m} everything changed.", "Nobody expected what that {y} {e} would bring.",
    "One {e} in {m} the peace was over.", "Then came the {e} that people would remember.", "It was a {y} {e} in {m} when the bells were rung.",
    "Yet good days do not last forever.", "That {m} brought a riddle.",
]
REACTIONS = [
    "{N} could not stand by and watch.", "{N} put down {his} cup and reached for {his} coat.", "{N} felt {his} heart beat faster.",
    "At first {N} hoped that somebody else would help.", "{N} did not wait to be asked.", "{N} took a deep breath and set off.",
    "\"This will not do,\" said {N}.", "\"I will see to it,\" {N} promised.", "\"Someone should help,\" thought {N}, \"and I am someone.\"",
    "{N} swallowed {his} fear and went to look.", "\"Let me try,\" said {N} in a small voice.", "{N} packed some bread and left within the hour.",
    "Most people shook their heads, but {N} did not.", "{N} thought about it for one night and then knew what to do.",
    "\"How hard can it be?\" asked {N}, and found out soon.",
]
HELPER_MEETINGS = [
    "On the way {N} met {W}, {aw}, who knew the place well.", "{Aw} by the name of {W} offered to come along.",
    "By the roadside sat {W}, {aw} with nothing to do.", "\"Two see more than one,\" said {W}, {aw}, and joined in.",
    "It was {W}, {aw}, who first believed in {N}.", "{W}, {aw} and an old friend, carried the bag.",
    "There {N} ran into {W}, {aw}, who loved riddles.", "\"You will need me,\" called {aw}, whose name was {W}.",
    "Luckily {aw} named {W} was awake as well.", "By the gate waited {aw}. \"I am {W},\" said a friendly voice.",
    "{N} asked {W}, {aw}, to hold the light.", "{Aw} called {W} had seen everything from above.",
    "Halfway there, {W} the {w} came running after {him}.",
]
FAILURES = [
    "The first try went wrong, and both of them landed in a puddle.", "It did not work, and {W} began to doubt.", "For a moment it looked hopeless.",
    "That only made it worse, and somebody laughed.", "Still nothing moved.", "\"Once more,\" said {W}, and they began again.",
    "It was harder than they had thought.", "They tried until their arms were tired, without any luck.", "\"We have missed something,\" {W} murmured.",
    "The plan was good, but it was not good enough.", "It almost worked, and almost is not enough.", "Then it began to rain, and {W} sighed.",
    "\"Perhaps we should go home,\" {W} whispered, but {N} stayed.", "Twice they failed and twice they laughed about it.",
]
TURNS = [
    "Then {N} looked more closely.", "Just then {N} had an idea.", "But {N} had not given up.", "Suddenly everything fell into place.",
    "After a short rest they looked at it from the other side.", "\"Wait!\" cried {N}.", "And there it was, the thing that all had overlooked.",
    "{N} remembered what {his} grandmother used to say about patience.", "So {N} asked a different question.", "At midnight the answer came.",
    "It took a while, but then {N} smiled.", "The second plan was simpler.", "Little by little the riddle opened up.",
]
PAUSES = [  # between the cure and its result; each holds a name, so that no long passage is shared
    "{N} held {his} breath.", "\"Now we wait,\" said {N}.", "{W} covered both eyes.", "\"Look!\" said {W} after a moment.", "For a while {W} heard nothing at all.",
    "{N} counted to seven.", "\"Did that help?\" asked {W}.", "{N} stepped back and crossed {his} fingers.", "{W} did not dare to move.",
    "\"Listen,\" whispered {N}.", "Then even {W} fell silent.", "\"There!\" called {N}.",
]
CELEBRATIONS = [
    "{W} threw a hat into the air.", "\"You did it!\" shouted {W}.", "The neighbors brought soup and music.", "Everybody wanted to shake {N} by the hand.",
    "{W} laughed so hard that the tears came.", "There was dancing until the stars grew pale.", "Even the grumpiest man in town clapped.",
    "\"I never doubted you,\" said {W}, which was not quite true.", "Somebody baked a pie, and somebody else ate it.",
    "{N} was so tired that {he} fell asleep in the middle of the party.", "Children made up a song about {N} and {W}.",
    "{W} bowed, {N} bowed, and then both of them giggled.", "A feast was held, and the smallest guest made the longest speech.",
]
ENDINGS = [
    "Since that day {N} and {W} have had breakfast together each Sunday.", "And whenever somebody says that a thing cannot be done, people point to {t}.",
    "{N} went home, hung up {his} coat and was content.", "Small hands, {N} had learned, can mend large things.",
    "If you go there today, you can still find a little sign with the name of {N}.", "That night {N} slept better than ever before.",
    "And {t} was never lonely again.", "\"What shall we do tomorrow?\" asked {W}, and {N} already knew.",
    "Nobody called {N} small after that.", "So it came that {h} and {w} became the best of friends.",
    "{N} kept one souvenir, a pebble, and looked at it when courage was needed.", "Courage, said {N} later, is only curiosity with wet feet.",
    "And that is how {N} found out what {he} was good at.", "The story was told for many winters, and each time it got a little longer.",
    "From then on {N} looked after {t}, and did it well.", "Asking for help, {N} thought, is the cleverest trick of all.",
    "It was a good ending, and, as {W} remarked, an even better beginning.", "To this day they wave to each other, {N} from one side and {W} from the other.",
]

ADJECTIVES = ["gray", "windy", "bright", "cold", "misty", "golden", "stormy", "frosty", "mild", "clear", "rainy", "dusty"]
TIMES = ["morning", "evening", "night", "afternoon", "Tuesday", "Thursday", "Sunday", "Monday"]
MONTHS = ["March", "April", "June", "August", "September", "October", "November", "December", "January", "May"]

PROMPTS = [
    "Tell me a short story about {a} and {b}.", "Tell me a story about {a} and {b}.", "Write a short story about {a} and {b}.",
    "Write a story about {a} and {b}.", "Tell a story about {a} and {b}.", "Can you tell me a story about {a} and {b}?",
    "Please tell me a short story about {a} and {b}.", "I want a story about {a} and {b}.", "A story about {a} and {b}, please.",
    "Make up a story about {a} and {b}.", "Give me a short story about {a} and {b}.", "Tell me a story with {a} and {b}.",
    "Write a tale about {a} and {b}.", "Tell me a bedtime story about {a} and {b}.", "Could you write a short story about {a} and {b}?",
    "Story about {a} and {b}", "Do you know a story about {a} and {b}?", "Write me a story about {a} and {b}.", "I'd like to hear a story about {a} and {b}.",
    "Invent a short story about {a} and {b}.", "Tell me a tale of {a} and {b}.", "Tell me something about {a} and {b} in a story.",
]
HELD_OUT_PROMPTS = [
    "Please write a short story about {a} and {b}.", "Could you tell me a story about {a} and {b}?", "I would like a short story about {a} and {b}.",
    "Tell us a little story about {a} and {b}.",
]
SINGLE_PROMPTS = [
    "Tell me a short story about {a}.", "Tell me a story about {a}.", "Write a short story about {a}.", "Write a story about {a}.",
    "A story about {a}, please.", "Can you tell me a story about {a}?", "Please tell me a story about {a}.", "Story about {a}",
]
OPEN_PROMPTS = ["Tell me a story.", "Tell me a short story.", "Write a story.", "A story, please.", "Can you tell me a story?", "Tell me a story!",
                "Please tell me a story.", "I want to hear a story.", "Do you know a story?", "Write a short story."]

USUAL = 0.6  # how often a sentence is the usual one of its hero or thing


@dataclass
class Story:
    hero: str
    thing: str
    text: str


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


@functools.lru_cache(maxsize=None)
def stable_hash(*parts):
    return int.from_bytes(hashlib.sha256("/".join(parts).encode()).digest()[:8], "big")


# Pairs kept for the evaluation: never together in a training story. The demo's pair is one of them.
DEMO_PAIR = ("robot", "lighthouse")


def is_held_out(hero, thing):
    return (hero, thing) == DEMO_PAIR or stable_hash("pair", hero, thing) % 100 < 12


def held_out_pairs():
    return [(h, t) for h in HEROES for t in THINGS if is_held_out(h, t)]


def pick(rng, options, owner, label, usual=USUAL):
    """One of the options: the owner's usual one, or any."""
    if rng.random() < usual:
        return options[stable_hash(owner, label) % len(options)]
    return rng.choice(options)


def tell(rng, hero, thing, friend=None):
    """One story about the pair; the random generator decides where it leaves the usual.

    A friend, another hero's noun, takes the helper's part.
    """
    names, kind, habit, skill_1, skill_2 = HEROES[hero]
    place, plots = THINGS[thing]
    name, pronoun = pick(rng, names, thing, "name").split("/")
    slots = dict(PRONOUNS[pronoun])
    slots.update(N=name, h="the " + hero, H="The " + hero, t="the " + thing, T="The " + thing, p=place)
    slots["d"] = kind.format(**slots)
    slots["w"] = pick(rng, HELPERS, thing, "helper", 0.5)
    slots["W"] = pick(rng, HELPER_NAMES, hero, "helper name", 0.5)
    if friend:
        slots["w"] = friend
        slots["W"] = pick(rng, HEROES[friend][0], hero, "friend").split("/")[0]
    slots["aw"] = article(slots["w"])
    slots["Aw"] = slots["aw"].capitalize()
    slots["y"] = pick(rng, ADJECTIVES, hero, "adjective", 0.5)
    slots["e"] = pick(rng, TIMES, thing, "time", 0.5)
    slots["m"] = pick(rng, MONTHS, hero, "month", 0.5)
    trouble, cure, result = pick(rng, plots, hero, "plot")
    first, second = (skill_1, skill_2) if pick(rng, [True, False], thing, "skills") else (skill_2, skill_1)
    def again(sentence, label):
        """The sentence with a pronoun for the name it begins with, in some stories."""
        if not pick(rng, [True, False], thing, label):
            return sentence
        return sentence.replace("{N}", "{He}" if sentence.startswith("{N}") else "{he}", 1)

    # By turns the hero and the thing decide, so that neither brings a whole passage along.
    sentences = [
        pick(rng, OPENINGS, thing, "opening"),
        again(habit, "habit"),
        pick(rng, TROUBLE_LEADS, hero, "lead"),
        trouble,
        pick(rng, REACTIONS, hero, "reaction"),
        pick(rng, HELPER_MEETINGS, thing, "meeting"),
        first,
        pick(rng, FAILURES, thing, "failure"),
        pick(rng, TURNS, thing, "turn"),
        again(second, "second"),
        cure,
        pick(rng, PAUSES, hero, "pause"),
        result,
        pick(rng, CELEBRATIONS, hero, "celebration"),
        pick(rng, ENDINGS, thing, "ending"),
    ]
    text = " ".join(s.format(**slots) for s in sentences)
    return Story(hero, thing, text)


def random_pair(rng):
    while True:
        hero, thing = rng.choice(list(HEROES)), rng.choice(list(THINGS))
        if not is_held_out(hero, thing):
            return hero, thing


def story_chat(rng):
    """A (prompt, story) pair for training."""
    hero, thing = random_pair(rng)
    story = tell(rng, hero, thing)
    kind = rng.random()
    if kind < 0.84:
        a, b = article(hero), article(thing)
        if rng.random() < 0.12:
            friend = rng.choice([h for h in HEROES if h != hero])
            story = tell(rng, hero, thing, friend)
            b = article(friend)
        style = rng.random()
        if style < 0.12:
            a, b = "the " + a.split(" ")[1], "the " + b.split(" ")[1]
        elif style < 0.2:
            a, b = a.split(" ")[1], b.split(" ")[1]
        if rng.random() < 0.2:
            a, b = b, a
        prompt = rng.choice(PROMPTS).format(a=a, b=b)
    elif kind < 0.95:
        prompt = rng.choice(SINGLE_PROMPTS).format(a=article(rng.choice([hero, thing])))
    else:
        prompt = rng.choice(OPEN_PROMPTS)
    return prompt, story.text
